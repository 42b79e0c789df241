"""Questions about tool calls, asked at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from nanobot_core.cli.output import printable, stderr
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.events import ApprovalRequested
from nanobot_core.hooks import specs as on
from nanobot_core.messages import JsonObject

Paused = Callable[[], AbstractContextManager[None]]
"""Leaves the terminal to a question."""


class TerminalApproval:
    """A plugin that asks the person at the terminal.

    Args:
        paused: leaves the terminal to the question.
    """

    def __init__(self, paused: Paused) -> None:
        self._paused = paused

    @on.present_approval
    async def present_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Show the call with its exact arguments and wait for yes or no; anything else is no."""
        call = event.call
        allowed = await ask(self._paused, event.question, call.name, call.arguments)
        return Ticket(allowed, "terminal")


async def ask(paused: Paused, question: str, name: str, arguments: JsonObject) -> bool:
    """Ask the person at the terminal about a call; anything but yes is no."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session_from_tty
    from rich.text import Text

    shown = json.dumps(arguments, indent=2, ensure_ascii=False)
    with paused(), create_app_session_from_tty():
        console = stderr()
        console.print(Text(printable(question), style="bold yellow"))
        console.print(Text(printable(f"{name} {shown}")))
        try:
            answer = await PromptSession[str]().prompt_async("Allow it? [y/N] ")
        except (EOFError, KeyboardInterrupt):
            answer = ""
        console.print()
    return answer.strip().lower() in {"y", "yes"}
