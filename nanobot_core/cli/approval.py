"""Questions about tool calls in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from nanobot_core.cli.output import printable, stderr
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.events import ApprovalRequested

Paused = Callable[[], AbstractContextManager[None]]
"""Releases the terminal for a question."""


async def ask(paused: Paused, event: ApprovalRequested) -> Ticket | None:
    """Ask the person at the terminal about a call. Any answer except yes and always means no.

    Args:
        paused: releases the terminal for the question.
        event: the call, whose arguments are shown in full.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session_from_tty
    from rich.text import Text

    shown = json.dumps(event.call.arguments, indent=2, ensure_ascii=False)
    with paused(), create_app_session_from_tty():
        console = stderr()
        console.print(Text(printable(event.question), style="bold yellow"))
        console.print(Text(printable(f"{event.call.name} {shown}")))
        try:
            choices = "[y/N/always]" if event.may_always else "[y/N]"
            said = await PromptSession[str]().prompt_async(f"Allow it? {choices} ")
        except (EOFError, KeyboardInterrupt):
            said = ""
        console.print()
    word = said.strip().lower()
    always = event.may_always and word in {"a", "always"}
    return Ticket(always or word in {"y", "yes"}, "terminal", always=always)
