"""Commands that run in the background until they end, are killed, or the plugin stops."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core import ToolFailed, ToolInputError

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_shell.process import CommandProcess
    from nanobot_shell.settings import ExecSettings

_KEPT_FINISHED = 32


@dataclass(frozen=True, slots=True)
class Session:
    """One background command.

    Attributes:
        id: what the model calls it.
        owner: session key of the chat that started it; others neither see nor touch it.
        command: the command line.
        process: the running or finished command.
        is_confined: it runs in a sandbox.
    """

    id: str
    owner: str
    command: str
    process: CommandProcess
    is_confined: bool

    @property
    def state(self) -> str:
        """Its state in words."""
        code = self.process.exit_code
        return "running" if code is None else f"ended with exit code {code}"


class Sessions:
    """The background commands of one application."""

    def __init__(self, ctx: PluginContext, settings: ExecSettings) -> None:
        self._ctx = ctx
        self._limit = settings.max_background
        self._sessions: dict[str, Session] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._is_closed = False

    @property
    def starting(self) -> asyncio.Lock:
        """Held from `require_room` until `add`, so that chats cannot pass the limit together."""
        return self._starting

    def require_room(self) -> None:
        """Check that one more command may be started; to be called with `starting` held.

        Raises:
            ToolFailed: the limit is reached, or the plugin is stopping.
        """
        running = [each for each in self._sessions.values() if each.process.exit_code is None]
        if self._is_closed or len(running) >= self._limit:
            msg = (
                f"{len(running)} background commands are running and {self._limit} are allowed; "
                "end one with exec_session(action='kill') first"
            )
            raise ToolFailed(msg)

    def add(
        self, owner: str, command: str, process: CommandProcess, *, is_confined: bool
    ) -> Session:
        """Keep a started command until it ends; when the plugin stops, it is ended."""
        session = Session(f"bg{next(self._numbers)}", owner, command, process, is_confined)
        self._sessions[session.id] = session
        self._forget_oldest()
        self._ctx.spawn(process.finish(), name=f"exec {session.id}")
        return session

    def get(self, owner: str, session_id: str) -> Session:
        """Return a session of `owner`.

        Raises:
            ToolInputError: the id is unknown.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            known = ", ".join(each.id for each in self.of(owner)) or "none"
            msg = f"unknown background command {session_id!r}; known: {known}"
            raise ToolInputError(msg)
        return session

    def of(self, owner: str) -> list[Session]:
        """Return the sessions of `owner`, oldest first."""
        return [each for each in self._sessions.values() if each.owner == owner]

    async def close(self) -> None:
        """End all commands concurrently."""
        async with self._starting:
            self._is_closed = True
        async with asyncio.TaskGroup() as group:
            for session in self._sessions.values():
                group.create_task(session.process.end())

    def _forget_oldest(self) -> None:
        finished = [each for each in self._sessions.values() if each.process.exit_code is not None]
        for session in finished[:-_KEPT_FINISHED]:
            del self._sessions[session.id]
