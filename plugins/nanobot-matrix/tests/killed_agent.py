"""A process that answers each message, and can be killed: URL, folder, settings as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from nanobot_core import InboundMessage, OutboundMessage, SystemClock
from nanobot_core.testing import FakePluginContext
from nanobot_matrix.channel import build_channel


class DurableInbox:
    """Keeps messages in a file, and notes which of them are answered in another one."""

    def __init__(self, folder: Path) -> None:
        self._received = folder / "received.jsonl"
        self._answered = folder / "answered.jsonl"
        self.pending: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        done = set(lines_of(self._answered))
        self._known = {json.loads(line)["key"] for line in lines_of(self._received)}
        for line in lines_of(self._received):
            if json.loads(line)["key"] not in done:
                self.pending.put_nowait(json.loads(line))

    async def publish(self, message: InboundMessage, complete: Any = None) -> bool:  # noqa: ANN401
        key = message.dedupe_key or ""
        if key in self._known:
            return False
        self._known.add(key)
        entry = {"key": key, "chat": message.chat_id, "text": message.content}
        append(self._received, json.dumps(entry))
        self.pending.put_nowait(entry)
        return True

    def alive(self) -> None:
        pass

    def note_answered(self, key: str) -> None:
        append(self._answered, key)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def append(file: Path, line: str) -> None:
    with file.open("a") as opened:
        opened.write(f"{line}\n")
        opened.flush()
        os.fsync(opened.fileno())


async def main(folder: Path, settings: dict[str, Any]) -> None:
    ctx = FakePluginContext(
        folder / "data", settings=settings, plugin_id="matrix", clock=SystemClock()
    )
    inbox, channel = DurableInbox(folder), build_channel(ctx)
    async with ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        while True:
            entry = await inbox.pending.get()
            await channel.send(
                OutboundMessage(
                    channel="matrix",
                    chat_id=entry["chat"],
                    content=f"answer to {entry['text']}",
                    idempotency_key=entry["key"],
                )
            )
            inbox.note_answered(entry["key"])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
