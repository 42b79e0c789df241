"""What must be true at the end of each day, and of the month."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from nanobot_core.testing.stand_in import answers
from tests.crowd.chat import Chat
from tests.month.attacks import ELSEWHERE, JOB, Attacks


def leaks(chats: Sequence[Chat], attacks: Attacks) -> Iterator[str]:
    """Yield secrets that people or the model were shown."""
    if attacks.seen:
        yield f"the model was shown {sorted(attacks.seen)}"
    for chat in chats:
        shown = answers(chat.platform, chat.id)
        texts = [
            *(message.text for message in shown),
            *(file.content.decode(errors="replace") for each in shown for file in each.files),
        ]
        if found := attacks.found_in("\n".join(texts)):
            yield f"{chat.platform.name} {chat.id} shows {found}"
        if not chat.is_berts and any(ELSEWHERE in text for text in texts):
            yield f"{chat.platform.name} {chat.id} shows what an attacker sent there"
        if any(f"You said: {JOB}" in text for text in texts):
            yield f"{chat.platform.name} {chat.id} shows the answer to a job of an attacker"


def leaks_on_disk(home: Path, attacks: Attacks) -> Iterator[str]:
    """Yield files of nanobot's that have secrets which do not belong there."""
    own = {home / "config.yaml": "provider-key", home / "workspace/owner-note.txt": "owner-note"}
    for file in home.rglob("*"):
        if not file.is_file() or file.is_symlink():
            continue
        text = file.read_bytes().decode(errors="replace")
        found = [name for name in attacks.found_in(text) if name != own.get(file)]
        if found:
            yield f"{file.relative_to(home)} has {found}"


def unreadable(home: Path) -> Iterator[str]:
    """Yield files whose content is damaged; no gateway runs."""
    for file in home.rglob("*.jsonl"):
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                json.loads(line)
            except ValueError as error:
                yield f"{file.relative_to(home)}, line {number}: {error}"
    for file in home.rglob("*.json"):
        if "workspace" not in file.relative_to(home).parts:
            try:
                json.loads(file.read_bytes())
            except ValueError as error:
                yield f"{file.relative_to(home)}: {error}"
    for file in home.rglob("*.sqlite"):
        with closing(sqlite3.connect(file)) as database:
            (found,) = database.execute("PRAGMA integrity_check").fetchone()
        if found != "ok":
            yield f"{file.relative_to(home)}: {found}"


def recorded(home: Path) -> tuple[int, int]:
    """Return the calls of models that nanobot-usage has recorded, and their tokens."""
    file = home / "plugins/usage/usage.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        columns = "sum(calls), sum(prompt_tokens + completion_tokens)"
        calls, tokens = database.execute(f"SELECT {columns} FROM usage").fetchone()  # noqa: S608
    return calls or 0, tokens or 0
