"""The few lines in the system prompt that describe the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_shell.settings import ExecSettings


def render_briefing(settings: ExecSettings) -> str:
    """Return where commands run and within which limits.

    It follows from the settings alone: trying the sandbox starts a process, and a turn without
    commands should not wait for that.
    """
    network = "on" if settings.sandbox_network else "off"
    sandbox = (
        "only the workspace is writable, the home folder and other processes are hidden, "
        f"network {network}"
    )
    unconfined = "only commands that can be read beforehand are accepted"
    places = {
        "auto": f"in a sandbox where this machine has one ({sandbox}), else {unconfined}",
        "bwrap": f"in a sandbox: {sandbox}",
        "none": f"without a sandbox: {unconfined}",
    }
    limits = [f"{settings.timeout_s} s by default", f"{settings.max_output_chars:,} characters"]
    if settings.memory_mb is not None:
        limits.append(f"{settings.memory_mb} MiB a process")
    if settings.cpu_s is not None:
        limits.append(f"{settings.cpu_s} s of CPU")
    return (
        f"exec runs commands {places[settings.sandbox]}.\n"
        f"Limits: {', '.join(limits)}; {settings.max_background} background commands."
    )
