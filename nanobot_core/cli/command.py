"""What commands of plugins can do at the terminal."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from nanobot_core.assignment import Requester
from nanobot_core.cli.backend import open_client
from nanobot_core.cli.options import Options, plugin_context
from nanobot_core.cli.output import fail, printable, run_async
from nanobot_core.contracts.client import DirectTurn, ignore_event
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.contracts.client import AgentClient
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.events import TurnOutcome

SESSION = "cli:commands"


@dataclass(frozen=True, slots=True)
class PluginCommandLine:
    """The `CommandLine` of one plugin.

    Attributes:
        options: the options before the command.
        plugin: id of the plugin.
    """

    options: Options
    plugin: str

    def __call__(self) -> AbstractAsyncContextManager[PluginContext]:
        """Start the plugin for a command; see `CommandLine`."""
        return plugin_context(self.options, self.plugin)

    def client(self) -> AbstractAsyncContextManager[AgentClient]:
        """Open the agent; see `CommandLine`."""
        return open_client(self.options)

    def slash(self, text: str) -> str:
        """Return the reply to a slash command; see `CommandLine`."""
        outcome = run_async(self._answer(text))
        if outcome.error is not None:
            fail(outcome.error)
        return printable(outcome.reply or "")

    async def _answer(self, text: str) -> TurnOutcome:
        requester = Requester(session_key=SESSION, authority="machine")
        async with open_client(self.options) as client:
            return await client.take_turn(DirectTurn(requester=requester, text=text), ignore_event)
