"""What commands of plugins can do at the terminal."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from nanobot_core.cli.options import Options, open_agent, plugin_context, running_gateway
from nanobot_core.cli.output import fail, printable, run_async
from nanobot_core.record import dataclass

if TYPE_CHECKING:
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

    def slash(self, text: str) -> str:
        """Return the reply to a slash command; see `CommandLine`."""
        outcome = run_async(self._answer(text))
        if outcome.error is not None:
            fail(outcome.error)
        return printable(outcome.reply or "")

    async def _answer(self, text: str) -> TurnOutcome:
        if client := running_gateway(self.options):
            return await client.turn({"text": text, "session": SESSION}, _ignore)
        async with open_agent(self.options) as bot:
            return await bot.run(text, session=SESSION)


async def _ignore(_event: object) -> None:
    """Ignore the events of a command."""
