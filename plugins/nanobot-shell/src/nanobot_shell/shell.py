"""One shell per application: settings, guard, sandbox and background sessions, kept together."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import ToolFailed
from nanobot_shell.guard import Guard
from nanobot_shell.process import CommandProcess, Launch, start_command
from nanobot_shell.sandbox import INSTALL_HINT, Probe, probe_sandbox
from nanobot_shell.sessions import Sessions
from nanobot_shell.settings import ExecSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INHERITED = ("HOME", "LANG", "TERM", "PATH")


class Shell:
    """Starts commands as the owner's settings want them.

    Tools and hooks take theirs by ``ctx.shared(Shell)``, so that they have one between them.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self.settings = ctx.settings(ExecSettings)
        self.workspace = ctx.workspace.resolve()
        self.sessions = Sessions(ctx, self.settings)
        ctx.on_dispose(self.sessions.close)
        self._environment = self._build_environment()
        self._probe: Probe | None = None
        self._probing = asyncio.Lock()

    @property
    def program(self) -> str:
        """The shell that reads the command lines: bash where there is one, else sh."""
        return shutil.which("bash", path=self._environment["PATH"]) or "/bin/sh"

    @property
    def holds_home(self) -> bool:
        """Whether the home folder lies in the workspace, so that the sandbox cannot hide it."""
        home = Path(self._environment["HOME"]).resolve()
        return home.is_relative_to(self.workspace)

    async def probe(self) -> Probe:
        """Return whether the sandbox works here; found out once."""
        if self.settings.sandbox == "none":
            return Probe(None, "tools.exec.sandbox is none")
        async with self._probing:
            if self._probe is None:
                self._probe = await asyncio.to_thread(
                    probe_sandbox,
                    self.workspace,
                    Path(self._environment["HOME"]),
                    has_network=self.settings.sandbox_network,
                    path=self._environment["PATH"],
                    readable=tuple(filter(None, self.settings.path_append.split(":"))),
                )
        return self._probe

    async def refusal(self, command: str, working_dir: str | None) -> str:
        """Return why the guard refuses `command`, or an empty string."""
        probe = await self.probe()
        if self.settings.sandbox == "bwrap" and probe.sandbox is None:
            return f"commands may run in the sandbox only, and {probe.reason}; {INSTALL_HINT}"
        guard = Guard(
            settings=self.settings,
            workspace=self.workspace,
            is_restricted=self._ctx.restrict_to_workspace,
            is_sandboxed=probe.sandbox is not None,
            network=self._ctx.network,
        )
        return await asyncio.to_thread(guard.refusal, command, working_dir)

    async def start(
        self, command: str, working_dir: Path, *, with_input: bool = False
    ) -> CommandProcess:
        """Start `command` in `working_dir`, in the sandbox where there is one.

        Raises:
            ToolFailed: it cannot be started, or only outside of the sandbox that is required.
        """
        probe = await self.probe()
        if self.settings.sandbox == "bwrap" and probe.sandbox is None:
            msg = f"commands may run in the sandbox only, and {probe.reason}; {INSTALL_HINT}"
            raise ToolFailed(msg)
        argv = [self.program, "-c", f"{self._limits()}{command}"]
        if probe.sandbox is not None:
            argv = probe.sandbox.wrap(argv, working_dir)
        launch = Launch(
            argv=argv,
            working_dir=working_dir,
            environment=self._environment,
            max_chars=self.settings.max_output_chars,
            with_input=with_input,
        )
        try:
            return await start_command(launch)
        except (OSError, ValueError) as error:
            msg = f"cannot start the command: {error}"
            raise ToolFailed(msg) from error

    def _limits(self) -> str:
        """Return shell text that lowers the limits for good before the command is read.

        The shell sets them on itself, since code between fork and exec is unsafe in a process with
        threads and ``prlimit`` is not everywhere. dash calls the number of processes ``-p``.
        """
        settings = self.settings
        lines = []
        if settings.memory_mb is not None:
            lines.append(f"ulimit -v {settings.memory_mb * 1024} || exit 126")
        if settings.cpu_s is not None:
            lines.append(f"ulimit -t {settings.cpu_s} || exit 126")
        if settings.max_processes is not None:
            count = settings.max_processes
            lines.append(f"{{ ulimit -u {count} || ulimit -p {count}; }} 2>/dev/null")
        return "".join(f"{line}\n" for line in lines)

    def _build_environment(self) -> dict[str, str]:
        names = (*_INHERITED, *self.settings.allowed_env_keys)
        environment = dict(self._ctx.environment(names))
        environment.setdefault("HOME", "/nonexistent")
        path = environment.get("PATH") or DEFAULT_PATH
        environment["PATH"] = ":".join(filter(None, (path, self.settings.path_append)))
        return environment
