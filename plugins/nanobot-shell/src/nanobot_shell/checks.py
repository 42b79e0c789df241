"""What ``nanobot doctor`` asks about shell commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import CheckResult
from nanobot_shell.sandbox import INSTALL_HINT
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from nanobot_core import PluginContext


async def check_sandbox(ctx: PluginContext) -> CheckResult:
    """Say which sandbox commands run in, and if there is none, why."""
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
