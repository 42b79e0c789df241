"""Questions about tool calls in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from nanobot_core.cli.output import printable, stderr
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.events import ApprovalRequested
from nanobot_core.hooks import specs as on
from nanobot_core.messages import JsonObject

Answer = Literal["yes", "always", "no"]
Paused = Callable[[], AbstractContextManager[None]]
"""Releases the terminal for a question."""


class TerminalApproval:
    """A plugin that asks the person at the terminal.

    Args:
        paused: releases the terminal for the question.
    """

    def __init__(self, paused: Paused) -> None:
        self._paused = paused

    @on.choose_approval
    async def choose_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Show the call with its exact arguments and wait for an answer."""
        call = event.call
        answer = await ask(
            self._paused, event.question, call.name, call.arguments, may_always=event.may_always
        )
        return Ticket(answer != "no", "terminal", always=answer == "always")


async def ask(
    paused: Paused, question: str, name: str, arguments: JsonObject, *, may_always: bool
) -> Answer:
    """Ask the person at the terminal about a call. Any answer except yes and always means no.

    Args:
        paused: releases the terminal for the question.
        question: one line.
        name: name of the tool.
        arguments: shown in full.
        may_always: offer to allow the same call in future.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session_from_tty
    from rich.text import Text

    shown = json.dumps(arguments, indent=2, ensure_ascii=False)
    with paused(), create_app_session_from_tty():
        console = stderr()
        console.print(Text(printable(question), style="bold yellow"))
        console.print(Text(printable(f"{name} {shown}")))
        try:
            choices = "[y/N/always]" if may_always else "[y/N]"
            said = await PromptSession[str]().prompt_async(f"Allow it? {choices} ")
        except (EOFError, KeyboardInterrupt):
            said = ""
        console.print()
    word = said.strip().lower()
    if may_always and word in {"a", "always"}:
        return "always"
    return "yes" if word in {"y", "yes"} else "no"
