"""Questions about tool calls, asked at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from nanobot_core.cli.output import printable, stderr
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.events import ApprovalRequested
from nanobot_core.hooks import specs as on


class TerminalApproval:
    """A plugin that asks the person at the terminal.

    Args:
        paused: leaves the terminal to the question.
    """

    def __init__(self, paused: Callable[[], AbstractContextManager[None]]) -> None:
        self._paused = paused

    @on.present_approval
    async def present_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Show the call with its exact arguments and wait for yes or no; anything else is no."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import create_app_session_from_tty
        from rich.text import Text

        arguments = json.dumps(event.call.arguments, indent=2, ensure_ascii=False)
        with self._paused(), create_app_session_from_tty():
            console = stderr()
            console.print(Text(printable(event.question), style="bold yellow"))
            console.print(Text(printable(f"{event.call.name} {arguments}")))
            try:
                answer = await PromptSession[str]().prompt_async("Allow it? [y/N] ")
            except (EOFError, KeyboardInterrupt):
                answer = ""
            console.print()
        return Ticket(answer.strip().lower() in {"y", "yes"}, "terminal")
