"""How commands run here, for ``nanobot doctor`` and for the system prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import CheckResult
from nanobot_shell.sandbox import INSTALL_HINT
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_shell.sandbox import Probe
    from nanobot_shell.settings import ExecSettings


async def check_sandbox(ctx: PluginContext) -> CheckResult:
    """Report in which sandbox commands run, or why there is none."""
    shell = ctx.shared(Shell)
    probe = await shell.probe()
    if probe.sandbox is not None and shell.holds_nanobot:
        return CheckResult(
            status="warning",
            message="commands can change nanobot itself, because it is installed in the workspace",
            remedy="set the workspace to a folder of its own",
        )
    if probe.sandbox is not None and shell.holds_home:
        return CheckResult(
            status="warning",
            message=(
                f"commands run in {probe.sandbox.name} and see the whole home folder, because it "
                "lies in the workspace"
            ),
            remedy="set the workspace to a folder of its own",
        )
    if probe.sandbox is not None:
        network = "on" if shell.settings.sandbox_network else "off"
        return CheckResult(
            status="ok", message=f"commands run in {probe.sandbox.name}, network {network}"
        )
    if shell.settings.sandbox == "none":
        return CheckResult(
            status="warning",
            message="commands run without a sandbox, because tools.exec.sandbox is none",
            remedy="set tools.exec.sandbox to auto, unless the whole host is isolated",
        )
    if shell.settings.sandbox == "auto":
        return CheckResult(
            status="warning",
            message=f"no sandbox; the owner is asked about each command: {probe.reason}",
            remedy=INSTALL_HINT,
        )
    return CheckResult(
        status="error",
        message=f"no command can run: {probe.reason}",
        remedy=INSTALL_HINT,
    )


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
