"""One shell per application: settings, guard, sandbox, background sessions and run together."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import Allow, Ask, Deny, Folder, ToolError, ToolFailed, ToolInputError
from nanobot_shell.process import CommandProcess, Launch, start_command
from nanobot_shell.runs import Run, end_former_runs
from nanobot_shell.sandbox import INSTALL_HINT, Probe, Sandbox, probe_sandbox
from nanobot_shell.sessions import Sessions
from nanobot_shell.settings import ExecSettings
from nanobot_shell.view import CONVERSATIONS, RECORDS, View, prepare_workspace, remove_redirection

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ToolContext
    from nanobot_shell.guard import Guard
    from nanobot_shell.reading import Reading

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_AGAIN_S = 60.0
_INHERITED = ("HOME", "LANG", "TERM", "PATH")


class Shell:
    """Starts commands according to the owner's settings.

    Tools and hooks share one instance, ``ctx.shared(Shell)``.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self.settings: ExecSettings = ctx.settings(ExecSettings)
        self.workspace: Path = ctx.workspace.resolve()
        self.sessions: Sessions = Sessions(ctx, self.settings)
        self._environment = self._build_environment()
        self._view = self._build_view()
        self._probe: Probe | None = None
        self._probe_again_at = 0.0
        self._probing = asyncio.Lock()
        self._run: Run | None = None
        self._starting_run = asyncio.Lock()
        ctx.on_dispose(self._close_run)
        ctx.on_dispose(self.sessions.close)

    @property
    def program(self) -> str:
        """The shell that reads the command lines: bash if it is installed, otherwise sh."""
        return shutil.which("bash", path=self._environment["PATH"]) or "/bin/sh"

    @property
    def holds_home(self) -> bool:
        """Whether the home folder lies in the workspace, so that no sandbox can hide it."""
        return self._view.home.is_relative_to(self.workspace)

    @property
    def holds_nanobot(self) -> bool:
        """Whether nanobot's own code lies in the workspace, where commands can change it."""
        places = (Path(sys.prefix), Path(__file__))
        return any(place.resolve().is_relative_to(self.workspace) for place in places)

    @property
    def known_probe(self) -> Probe | None:
        """What `probe` returns without waiting; ``None`` if it must look."""
        return self._probe if self._probe is not None and self._probe.is_final else None

    async def probe(self) -> Probe:
        """Return the sandbox that works here; a result that is not final is kept for a minute."""
        now = asyncio.get_running_loop().time()
        async with self._probing:
            if self._probe is None or (not self._probe.is_final and now > self._probe_again_at):
                self._probe = await asyncio.to_thread(
                    probe_sandbox, self.settings.sandbox, self._view, self._environment["PATH"]
                )
                self._probe_again_at = now + PROBE_AGAIN_S
        return self._probe

    async def end_former(self) -> None:
        """End processes that the commands of a killed gateway left behind; done once."""
        async with self._starting_run:
            if self._run is None:
                folder = self._ctx.data_dir / "runs"
                loop = asyncio.get_running_loop()
                starting = loop.run_in_executor(None, _start_run, folder)
                try:
                    self._run, count = await asyncio.shield(starting)
                except asyncio.CancelledError:
                    # The thread continues, and what it opens must be closed.
                    self._run, _ = await starting
                    raise
                if count:
                    self._ctx.logger.log("WARNING", "ended {} processes of killed gateways", count)

    async def judge(
        self, context: ToolContext, command: str, working_dir: str | None
    ) -> tuple[str, Reading | None]:
        """Return why the guard refuses `command`, or an empty string, and the parsed line."""
        # The parser of command lines takes long to import, and most turns run no command.
        from nanobot_shell.guard import MAX_COMMAND_CHARS, Guard

        if len(command) > MAX_COMMAND_CHARS:
            reason = (
                f"the command has {len(command):,} characters and {MAX_COMMAND_CHARS:,} are "
                "accepted; split it into several commands, or run a script from a file"
            )
            return reason, None
        probe = await self.probe()
        if reason := self._refusal_of_all(probe):
            return reason, None
        guard = Guard(
            settings=self.settings,
            files=context.files,
            must_confine=self._ctx.restrict_to_workspace and probe.sandbox is None,
        )
        return await asyncio.to_thread(self._judge, guard, context, command, working_dir)

    def without_sandbox(self, context: ToolContext, what: str, subject: str) -> Allow | Ask | Deny:
        """Decide whether something may run without a sandbox.

        Args:
            what: a question of one line.
            subject: what "always" remembers.
        """
        if not context.is_owner:
            return Deny("only the owner may run commands without a sandbox; do it another way")
        return Allow() if self.settings.sandbox == "none" else Ask(what, subject=subject)

    def folder(self, context: ToolContext, working_dir: str | None) -> Path:
        """Return the folder to start in, free of links; blocking.

        Raises:
            ToolError: the folder does not exist, or is outside although it must not be.
        """
        text = working_dir or "."
        try:
            if self._ctx.restrict_to_workspace:
                folder = context.files.resolve_read(text)
            else:
                folder = (context.workspace / Path(text).expanduser()).resolve()
            with Folder(folder).directory():
                return folder
        except (FileNotFoundError, NotADirectoryError) as error:
            msg = f"working_dir {working_dir!r} is not a folder; name an existing one"
            raise ToolInputError(msg) from error
        except (OSError, ValueError, RuntimeError) as error:
            msg = f"working_dir {working_dir!r} cannot be used: {error}"
            raise ToolInputError(msg) from error

    async def start(
        self, context: ToolContext, command: str, folder: Path, *, with_input: bool = False
    ) -> CommandProcess:
        """Start `command` in `folder`, in the sandbox where there is one.

        Raises:
            ToolFailed: it cannot be started, or only outside of the sandbox that is required.
        """
        probe = await self.probe()
        if reason := self._refusal_of_all(probe):
            raise ToolFailed(reason)
        await self.end_former()
        argv = [self.program, "-c", f"{self._limits()}{command}"]
        try:
            launch = await asyncio.to_thread(self._launch, context, argv, folder, probe.sandbox)
            return await start_command(replace(launch, with_input=with_input))
        except (OSError, ValueError) as error:
            msg = f"cannot start the command: {error}"
            raise ToolFailed(msg) from error

    def _judge(
        self, guard: Guard, context: ToolContext, command: str, working_dir: str | None
    ) -> tuple[str, Reading]:
        from nanobot_shell.reading import read_command_line

        reading = read_command_line(command)
        try:
            return guard.refusal(reading, self.folder(context, working_dir)), reading
        except ToolError as error:
            return str(error), reading

    def _refusal_of_all(self, probe: Probe) -> str:
        if probe.sandbox is None and self.settings.sandbox not in {"auto", "none"}:
            return f"commands may run in the sandbox only, and {probe.reason}; {INSTALL_HINT}"
        return ""

    def _launch(
        self, context: ToolContext, argv: list[str], folder: Path, sandbox: Sandbox | None
    ) -> Launch:
        assert self._run is not None  # noqa: S101  # `end_former` was called
        launch = Launch(
            argv=argv,
            working_dir=folder,
            environment=self._environment,
            run_id=self._run.id,
        )
        if sandbox is None:
            return launch
        workspace = _require_own(context)
        is_agents = workspace == self.workspace
        if is_agents:
            prepare_workspace(workspace)
        temporary = None if sandbox.has_own_folders else self._run.make_temporary()
        view = replace(
            self._view,
            workspace=workspace,
            hidden=(*self._view.hidden, *(self.workspace / name for name in CONVERSATIONS)),
            records=RECORDS if is_agents else (),
            temporary=temporary,
        )
        return replace(
            launch,
            argv=sandbox.wrap(argv, view, folder),
            environment=self._environment if temporary is None else self._moved(view, temporary),
            clean=partial(_clean, workspace, temporary),
        )

    def _moved(self, view: View, temporary: Path) -> Mapping[str, str]:
        """Return the environment for a sandbox that can hide folders, but not put others there."""
        seen = filter(view.is_visible, self._environment["PATH"].split(":"))
        places = dict.fromkeys(("HOME", "TMPDIR"), str(temporary))
        return {**self._environment, **places, "PATH": ":".join(seen)}

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

    def _build_view(self) -> View:
        return View(
            home=Path(self._environment["HOME"]).resolve(),
            hidden=tuple(path.resolve() for path in self._ctx.protected_paths),
            readable=tuple(map(Path, filter(None, self.settings.path_append.split(":")))),
            has_network=self.settings.sandbox_network,
        )

    async def _close_run(self) -> None:
        async with self._starting_run:
            if self._run is not None:
                await asyncio.to_thread(self._run.close)
                self._run = None


def _start_run(folder: Path) -> tuple[Run, int]:
    count = end_former_runs(folder)
    return Run(folder), count


def _require_own(context: ToolContext) -> Path:
    """Return the folder that the command may change.

    Raises:
        ToolFailed: a link has taken its place, as another command can do to a folder of a guest's.
    """
    folder = context.files.workspace
    if context.workspace.resolve() != folder or folder.resolve() != folder:
        msg = f"no command can run: '{folder.name}' is a link now; ask the owner to remove it"
        raise ToolFailed(msg)
    return folder


def _clean(workspace: Path, temporary: Path | None) -> None:
    remove_redirection(workspace)
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
