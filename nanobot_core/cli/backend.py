"""Answers messages at the terminal: an agent in this process, or the running gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from nanobot_core.cli.options import Options, open_agent, running_gateway
from nanobot_core.errors import NoProvider
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.client import ControlClient
    from nanobot_core.cli.agent import ChatOptions
    from nanobot_core.cli.approval import Answer
    from nanobot_core.cli.render import View
    from nanobot_core.events import RunEvent, TurnOutcome
    from nanobot_core.messages import JsonObject


class Backend(Protocol):
    """Answers messages.

    Attributes:
        home: nanobot's folder.
    """

    home: Path

    async def answer(self, chat_options: ChatOptions, text: str, view: View | None) -> TurnOutcome:
        """Answer `text` and show the turn in `view`; cancellation stops the turn."""

    async def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""

    def who(self, chat_options: ChatOptions) -> str:
        """Return a short description of the model that answers."""

    def problems(self) -> list[str]:
        """Return a sentence for each plugin that did not start."""

    def watched(self) -> AbstractAsyncContextManager[None]:
        """Report plugins that block the event loop."""


@asynccontextmanager
async def open_backend(options: Options, view: View) -> AsyncIterator[Backend]:
    """Yield the running gateway or a new agent; `view` asks about tool calls."""
    if client := running_gateway(options):
        yield _Gateway(client, view)
        return
    from nanobot_core.app.workspace import sync_templates
    from nanobot_core.folder import Folder

    agent = open_agent(options)
    await asyncio.to_thread(sync_templates, Folder(agent.loaded.workspace))
    async with agent as bot:
        if _has_terminal():
            from nanobot_core.cli.approval import TerminalApproval

            await bot.plugins.register(TerminalApproval(view.paused), "terminal")
        yield _Local(bot)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


class _Local:
    """An agent in this process."""

    def __init__(self, bot: Nanobot) -> None:
        self.bot = bot
        self.home: Path = bot.loaded.home

    async def answer(self, chat_options: ChatOptions, text: str, view: View | None) -> TurnOutcome:
        """See `Backend`."""
        from nanobot_core.turns.request import TurnRequest

        message = InboundMessage(
            channel="cli",
            sender_id="user",
            chat_id="direct",
            content=text,
            id=new_id(),
            session_key_override=chat_options.session,
        )
        return await self.bot.process_direct(
            TurnRequest(
                message=message,
                source="cli",
                model=chat_options.model,
                is_owner=True,
                on_event=view.show if view else _unseen,
            )
        )

    async def commands(self) -> Mapping[str, str]:
        """See `Backend`."""
        return self.bot.commands.names()

    def problems(self) -> list[str]:
        """See `Backend`."""
        from nanobot_core.plugins.health import QUIET_STATES

        return [
            f"plugin '{item.id}' is {item.state}: {item.reason}; "
            f"nanobot plugins why {item.id} says what to do"
            for item in self.bot.plugins.reports()
            if item.state not in QUIET_STATES
        ]

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """See `Backend`."""
        watching = self.bot.spawn(self.bot.plugins.watch_loop(), name="watch")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    def who(self, chat_options: ChatOptions) -> str:
        """See `Backend`."""
        try:
            match = self.bot.models.match(chat_options.model)
        except NoProvider:
            return "no model, run nanobot onboard"
        return f"{match.model} by {match.row.spec.name}"


class _Gateway:
    """The running gateway."""

    def __init__(self, client: ControlClient, view: View) -> None:
        self._client = client
        self._view = view
        self.home: Path = client.folder.parent

    async def answer(self, chat_options: ChatOptions, text: str, view: View | None) -> TurnOutcome:
        """See `Backend`."""
        asked: JsonObject = {
            "text": text,
            "session": chat_options.session,
            "model": chat_options.model,
        }
        show = view.show if view else _unseen
        outcome = await self._client.turn(asked, show, self._decide)
        await show(outcome)
        return outcome

    async def commands(self) -> Mapping[str, str]:
        """See `Backend`."""
        found = await self._client.call("commands")
        return {name: str(text) for name, text in found.items()} if isinstance(found, dict) else {}

    def who(self, chat_options: ChatOptions) -> str:
        """See `Backend`."""
        return f"{chat_options.model or 'the running gateway'}"

    def problems(self) -> list[str]:
        """See `Backend`; the gateway shows its plugins in ``/status``."""
        return []

    def watched(self) -> AbstractAsyncContextManager[None]:
        """See `Backend`; the gateway does this for all callers."""
        return nullcontext()

    async def _decide(self, question: JsonObject) -> Answer:
        if not _has_terminal():
            return "no"
        from nanobot_core.cli.approval import ask

        arguments = question.get("arguments")
        return await ask(
            self._view.paused,
            str(question.get("question")),
            str(question.get("name")),
            arguments if isinstance(arguments, dict) else {},
            may_always=question.get("may_always") is True,
        )


async def _unseen(_event: RunEvent) -> None:
    """Ignore the events of a turn."""
