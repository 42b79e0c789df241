"""Slash commands: answered without the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from nanobot_core._version import __version__
from nanobot_core.contracts.operation import OpenQuestion
from nanobot_core.contracts.plugin import CommandCall, SlashCommand
from nanobot_core.errors import (
    FOREIGN_ERRORS,
    LimitError,
    NanobotError,
    PluginError,
    PluginRejected,
)
from nanobot_core.events import TurnInfo
from nanobot_core.plugins.health import QUIET_STATES
from nanobot_core.plugins.host import PluginHost
from nanobot_core.plugins.loader import load_object
from nanobot_core.plugins.manifest import known_fields
from nanobot_core.sessions.session import Session, Sessions
from nanobot_core.text import nearest
from nanobot_core.turns.memory import SessionMemory
from nanobot_core.turns.model_command import KnownModels, ModelCommand

CoreCommand = Callable[[CommandCall, Session], Awaitable[str]]
CORE_COMMANDS = {
    "help": "show all commands",
    "start": "greet, and show all commands",
    "new": "start a new conversation",
    "status": "show the model, the session and problems",
    "model": "show or set the model of this conversation",
    "stop": "stop the current turn of this chat",
    "approve": "allow a tool call that waits for approval: /approve ID",
    "deny": "refuse a tool call that waits for approval: /deny ID",
    "pairing": "admit unknown senders: /pairing, /pairing approve CODE, /pairing revoke CHANNEL ID",
    "plugins": "list plugins: /plugins, /plugins enable|disable|reload ID",
}
"""The core's own commands with their summaries; no plugin can take their names."""
GATEWAY_ONLY = frozenset({"stop", "approve", "deny", "pairing", "plugins"})
OWNER_ONLY = frozenset({"approve", "deny", "pairing", "plugins"})
CONTROL = frozenset({"help", "start", "status", "stop", "approve", "deny", "pairing", "plugins"})
"""Answered at once, beside a turn of their session."""
NOT_REMEMBERED = (
    "Memory could not keep the previous one; it is still in the session's file (nanobot sessions "
    "show), and the log says what failed."
)


class Controls(Protocol):
    """What commands can do to the gateway."""

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session; False if none is running."""

    def questions(self) -> Sequence[OpenQuestion]:
        """Return the tool calls that wait for an approval, the oldest first."""

    async def resolve_approval(self, approval_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question about a tool call; False if it is not open."""

    async def change_pairing(self, words: list[str]) -> str:
        """List, approve or revoke, and return what was done."""

    async def change_plugin(self, words: list[str]) -> str:
        """List, enable, disable or reload plugins, and return what was done."""

    async def problems(self) -> list[str]:
        """Return a line for each channel and service that does not work."""


class Commands:
    """The core's commands and those of plugins.

    Args:
        host: knows the plugins' commands.
        sessions: sessions that commands change.
        memory: stores the messages of a session before a new conversation.
        models: the models of the configuration.
        losses: returns a line for each passage that the last request of a session lacks.
        controls: the gateway; ``None`` in a program without one.
    """

    def __init__(
        self,
        host: PluginHost,
        sessions: Sessions,
        memory: SessionMemory,
        models: KnownModels,
        losses: Callable[[str], Sequence[str]],
        controls: Controls | None = None,
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._memory = memory
        self._model = ModelCommand(models, sessions)
        self._losses = losses
        self._controls = controls
        self._core: dict[str, CoreCommand] = {
            "help": self._help,
            "start": self._start,
            "new": self._new,
            "status": self._status,
            "model": self._model.answer,
            "stop": self._stop,
            "approve": self._resolve,
            "deny": self._resolve,
            "pairing": self._pairing,
            "plugins": self._plugins,
        }

    def names(self) -> dict[str, str]:
        """Return every command that works here with its summary, by name."""
        found = {
            name: summary
            for name, summary in CORE_COMMANDS.items()
            if self._controls is not None or name not in GATEWAY_ONLY
        }
        for _, declaration in self._host.declared("commands"):
            found.setdefault(declaration.name, declaration.summary)
        return dict(sorted(found.items()))

    def is_command(self, text: str) -> bool:
        """Whether `text` is a command that works here."""
        return _name(text) in self.names()

    def is_control(self, text: str) -> bool:
        """Whether `text` is a command that is answered at once, beside a turn of its session."""
        name = _name(text)
        return name in CONTROL or any(
            declaration.name == name and declaration.detail.get("control") is True
            for _, declaration in self._host.declared("commands")
        )

    async def answer(
        self, text: str, turn: TurnInfo, session: Session, *, is_owner: bool
    ) -> str | None:
        """Return the reply to a command or a misspelt one, else ``None``.

        Raises:
            PluginError: the plugin of the command cannot run.
        """
        name, rest = _name(text), text.strip().partition(" ")[2]
        if not name:
            return None
        call = CommandCall(turn=turn, name=name, text=rest.strip(), is_owner=is_owner)
        if name in self._core:
            if name in OWNER_ONLY and not is_owner:
                return f"/{name} is for the owner only."
            return await self._core[name](call, session)
        for plugin, declaration in self._host.declared("commands"):
            if declaration.name == name:
                return await self._run(plugin, declaration.detail, call)
        return self._suggestion(name)

    def _suggestion(self, name: str) -> str | None:
        """Return a reply if `name` resembles a command, else ``None``."""
        close = nearest(name, self.names(), limit=1, cutoff=0.7)
        if not close:
            return None
        return f"Unknown command /{name}. Did you mean /{close[0]}? /help lists all commands."

    async def _run(self, plugin: str, detail: dict[str, Any], call: CommandCall) -> str:
        command = SlashCommand(**known_fields(SlashCommand, detail))
        if command.owner_only and not call.is_owner:
            return f"/{command.name} is for the owner only."
        context = await self._host.context_for(plugin)
        handler = await asyncio.to_thread(load_object, plugin, command.handler)
        if not callable(handler):
            raise PluginRejected(plugin, f"'{command.handler}' cannot be called")
        try:
            reply = handler(context, call)
            if inspect.isawaitable(reply):
                reply = await reply
        except NanobotError:
            raise
        except FOREIGN_ERRORS as error:
            reason = f"its command /{command.name} failed with {type(error).__name__}: {error}"
            raise PluginError(plugin, reason) from error
        return str(reply)

    async def _help(self, call: CommandCall, session: Session) -> str:
        lines = [f"- `/{name}`: {summary}" for name, summary in self.names().items()]
        return "Commands:\n\n" + "\n".join(lines)

    async def _start(self, call: CommandCall, session: Session) -> str:
        listed = await self._help(call, session)
        return f"Hello, I am nanobot. Write to me as you would to a colleague.\n\n{listed}"

    async def _new(self, call: CommandCall, session: Session) -> str:
        is_kept = await self._memory.archive(session, call.turn, session.messages)
        await self._sessions.mark_consolidated(session, session.stored.last_index, summary="")
        if not is_kept:
            return f"Started a new conversation. {NOT_REMEMBERED}"
        return "Started a new conversation."

    async def _status(self, call: CommandCall, session: Session) -> str:
        problems = [
            f"- {item.id}: {item.state}, {item.reason}"
            for item in self._host.reports()
            if item.state not in QUIET_STATES
        ]
        problems += [f"- The passage {line}" for line in self._losses(session.key)]
        if self._controls is not None:
            problems += [f"- {line}" for line in await self._controls.problems()]
        return "\n".join(
            [
                f"nanobot {__version__}",
                "",
                f"- Model: {self._model.current(session)}",
                f"- Session: {session.key}, {len(session.messages)} messages in context",
                f"- Tools: {len(self._host.tools)}",
                *(["", "Problems:", *problems] if problems else []),
            ]
        )

    async def _stop(self, call: CommandCall, session: Session) -> str:
        stopped = await self._gateway().stop_turn(session.key)
        return "Stopped." if stopped else "Nothing is running in this chat."

    async def _resolve(self, call: CommandCall, session: Session) -> str:
        if not call.text:
            # A group must not read what other chats ask for.
            lines = [
                f"- {one.id} in {one.session_key}: {one.question}"
                for one in self._gateway().questions()
                if not call.turn.is_group or one.session_key == session.key
            ]
            return "\n".join([f"Name the request: /{call.name} ID", *(lines or ["None is open."])])
        allowed = call.name == "approve"
        found = await self._gateway().resolve_approval(
            call.text, allowed=allowed, by=call.turn.sender_id
        )
        if not found:
            return f"There is no pending request {call.text}. It may be answered or expired."
        return "Approved." if allowed else "Denied."

    async def _pairing(self, call: CommandCall, session: Session) -> str:
        return await self._gateway().change_pairing(call.text.split())

    async def _plugins(self, call: CommandCall, session: Session) -> str:
        return await self._gateway().change_plugin(call.text.split())

    def _gateway(self) -> Controls:
        if self._controls is None:
            msg = "this command needs a gateway; start one with: nanobot gateway"
            raise LimitError(msg)
        return self._controls


def _name(text: str) -> str:
    """Return the command that `text` begins with, without its slash, or an empty string."""
    word = text.strip().partition(" ")[0]
    return word[1:].lower() if word.startswith("/") else ""
