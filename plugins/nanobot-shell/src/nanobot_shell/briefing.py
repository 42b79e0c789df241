"""The few lines in the system prompt that describe the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_shell.sandbox import Probe
    from nanobot_shell.settings import ExecSettings


def render_briefing(settings: ExecSettings, probe: Probe) -> str:
    """Return where commands run and within which limits; the same for as long as a process runs."""
    limits = [f"{settings.timeout_s} s by default", f"{settings.max_output_chars:,} characters"]
    if settings.memory_mb is not None:
        limits.append(f"{settings.memory_mb} MiB a process")
    if settings.cpu_s is not None:
        limits.append(f"{settings.cpu_s} s of CPU")
    return (
        f"exec {_place(settings, probe)}.\n"
        f"Limits: {', '.join(limits)}; {settings.max_background} background commands."
    )


def _place(settings: ExecSettings, probe: Probe) -> str:
    if probe.sandbox is not None:
        network = "on" if settings.sandbox_network else "off"
        parts = [
            "only the workspace is writable, without memory, sessions and .nanobot",
            "the home folder and other processes are hidden",
            f"network {network}",
            probe.sandbox.limits,
        ]
        return (
            f"runs commands in a sandbox ({probe.sandbox.name}): {'; '.join(filter(None, parts))}"
        )
    if settings.sandbox == "none":
        return "runs commands without a sandbox"
    if settings.sandbox == "auto":
        return "runs commands without a sandbox, and the owner is asked about each one"
    return f"runs no command, because the owner requires a sandbox and {probe.reason}"
