"""Slash commands: answered without the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from nanobot_core._version import __version__
from nanobot_core.contracts.plugin import CommandCall, SlashCommand
from nanobot_core.errors import NanobotError, PluginError, PluginRejected
from nanobot_core.events import TurnInfo
from nanobot_core.plugins.host import PluginHost
from nanobot_core.plugins.loader import load_object
from nanobot_core.sessions.session import Session, Sessions

CoreCommand = Callable[[CommandCall, Session], Awaitable[str]]
CORE_COMMANDS = {
    "help": "show all commands",
    "new": "start a new conversation",
    "status": "show model, session and plugins in trouble",
    "model": "show or set the model of this conversation",
}
"""The core's own commands with their summaries; no plugin can take their names."""


class Commands:
    """The core's commands and those of plugins.

    Args:
        host: knows the plugins' commands.
        sessions: sessions that commands change.
        archive: hands the messages of a session to memory before it starts afresh.
        default_model: name of the configured model.
    """

    def __init__(
        self,
        host: PluginHost,
        sessions: Sessions,
        archive: Callable[[Session], Awaitable[None]],
        default_model: Callable[[], str],
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._archive = archive
        self._default_model = default_model
        self._core: dict[str, CoreCommand] = {
            "help": self._help,
            "new": self._new,
            "status": self._status,
            "model": self._model,
        }

    def names(self) -> dict[str, str]:
        """Return every command with its summary, by name."""
        found = dict(CORE_COMMANDS)
        for _, declaration in self._host.declared("commands"):
            found.setdefault(declaration.name, declaration.summary)
        return dict(sorted(found.items()))

    async def answer(
        self, text: str, turn: TurnInfo, session: Session, *, is_owner: bool
    ) -> str | None:
        """Return the reply to a command, or ``None`` when `text` is no known one.

        Raises:
            PluginError: the plugin of the command cannot run.
        """
        word, _, rest = text.strip().partition(" ")
        if not word.startswith("/"):
            return None
        name = word[1:].lower()
        call = CommandCall(turn=turn, name=name, text=rest.strip(), is_owner=is_owner)
        if name in self._core:
            return await self._core[name](call, session)
        for plugin, declaration in self._host.declared("commands"):
            if declaration.name == name:
                return await self._run(plugin, declaration.detail, call)
        return None

    async def _run(self, plugin: str, detail: dict[str, Any], call: CommandCall) -> str:
        command = SlashCommand(**detail)
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
        except (Exception, SystemExit) as error:  # isolation point
            reason = f"its command /{command.name} failed with {type(error).__name__}: {error}"
            raise PluginError(plugin, reason) from error
        return str(reply)

    async def _help(self, call: CommandCall, session: Session) -> str:
        lines = [f"- `/{name}`: {summary}" for name, summary in self.names().items()]
        return "Commands:\n\n" + "\n".join(lines)

    async def _new(self, call: CommandCall, session: Session) -> str:
        await self._archive(session)
        metadata = {key: value for key, value in session.state.metadata.items() if key != "summary"}
        await self._sessions.start_afresh(session)
        await self._sessions.append(session, metadata=metadata)
        return "A new conversation begins."

    async def _status(self, call: CommandCall, session: Session) -> str:
        trouble = [
            f"- {item.id}: {item.state}, {item.reason}"
            for item in self._host.reports()
            if item.state not in {"active", "found", "disabled"}
        ]
        return "\n".join(
            [
                f"nanobot {__version__}",
                "",
                f"- Model: {session.state.metadata.get('model') or self._default_model()}",
                f"- Session: {session.key}, {len(session.messages)} messages in context",
                f"- Tools: {len(self._host.tools)}",
                *(["", "Plugins in trouble:", *trouble] if trouble else []),
            ]
        )

    async def _model(self, call: CommandCall, session: Session) -> str:
        if not call.text:
            return f"Model: {session.state.metadata.get('model') or self._default_model()}"
        metadata = {**session.state.metadata, "model": call.text}
        await self._sessions.append(session, metadata=metadata)
        return f"This conversation now uses {call.text}."
