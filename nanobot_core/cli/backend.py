"""Answers messages at the terminal: an agent in this process, or the running gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nanobot_core.assignment import Requester
from nanobot_core.cli.options import Options, open_agent, running_gateway
from nanobot_core.contracts.client import DirectTurn, ignore_event
from nanobot_core.errors import NoProvider

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.client import ControlClient
    from nanobot_core.cli.agent import ChatOptions
    from nanobot_core.cli.render import View
    from nanobot_core.contracts.client import AgentClient, Decide
    from nanobot_core.events import TurnOutcome


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
    if control := running_gateway(options):
        yield _Gateway(control, view)
        return
    async with _started_agent(options) as bot:
        yield _Local(bot, view)


@asynccontextmanager
async def open_client(options: Options) -> AsyncIterator[AgentClient]:
    """Yield the agent of the running gateway or a new one, for a program of the owner's."""
    if control := running_gateway(options):
        from nanobot_core.app.remote import RemoteClient

        yield RemoteClient(control)
        return
    async with _started_agent(options) as bot:
        yield bot.client


@asynccontextmanager
async def _started_agent(options: Options) -> AsyncIterator[Nanobot]:
    from nanobot_core.app.workspace import sync_templates
    from nanobot_core.folder import Folder

    agent = open_agent(options)
    await asyncio.to_thread(sync_templates, Folder(agent.loaded.workspace))
    async with agent as bot:
        yield bot


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _answer(
    client: AgentClient, chat_options: ChatOptions, text: str, view: View | None, asking: View
) -> TurnOutcome:
    turn = DirectTurn(
        requester=Requester(session_key=chat_options.session, authority="machine"),
        text=text,
        model=chat_options.model,
    )
    decide: Decide | None = None
    if _has_terminal():
        from nanobot_core.cli.approval import ask

        decide = partial(ask, asking.paused)
    return await client.take_turn(turn, view.show if view else ignore_event, decide)


class _Local:
    """An agent in this process."""

    def __init__(self, bot: Nanobot, view: View) -> None:
        self.bot = bot
        self._view = view
        self.home: Path = bot.loaded.home

    async def answer(self, chat_options: ChatOptions, text: str, view: View | None) -> TurnOutcome:
        """See `Backend`."""
        return await _answer(self.bot.client, chat_options, text, view, self._view)

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

    def __init__(self, control: ControlClient, view: View) -> None:
        from nanobot_core.app.remote import RemoteClient

        self._client = RemoteClient(control)
        self._view = view
        self.home: Path = control.folder.parent

    async def answer(self, chat_options: ChatOptions, text: str, view: View | None) -> TurnOutcome:
        """See `Backend`."""
        return await _answer(self._client, chat_options, text, view, self._view)

    async def commands(self) -> Mapping[str, str]:
        """See `Backend`."""
        return await self._client.commands()

    def who(self, chat_options: ChatOptions) -> str:
        """See `Backend`."""
        return f"{chat_options.model or 'the running gateway'}"

    def problems(self) -> list[str]:
        """See `Backend`; the gateway shows its plugins in ``/status``."""
        return []

    def watched(self) -> AbstractAsyncContextManager[None]:
        """See `Backend`; the gateway does this for all callers."""
        return nullcontext()
