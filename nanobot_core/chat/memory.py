"""What channels remember: in memory, or in files that outlive the process."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from nanobot_core.disk import corrupt_name, replace_file
from nanobot_core.tasks import finish_in_thread

if TYPE_CHECKING:
    from nanobot_core.chat.rich_text import RichText
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.messages import JsonValue

_KEPT = 500
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Recent(Generic[KeyT, ValueT]):
    """A mapping in memory that drops the oldest entries."""

    def __init__(self, size: int = _KEPT) -> None:
        self._size = size
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value of `key`, or ``None``."""
        return self._entries.get(key)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Store `value` as the newest entry."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: KeyT) -> None:
        """Remove `key`, if it exists."""
        self._entries.pop(key, None)


class Records:
    """A mapping of texts to JSON values in a file, such as the newest message of each chat.

    Changes that are made while the file is being written share the next write. A damaged file is
    kept aside, and counts as empty.

    Args:
        file: where they are kept, readable by the owner only.
        size: most entries; the oldest are dropped.
    """

    def __init__(self, file: Path, size: int = _KEPT) -> None:
        self._file = file
        self._size = size
        self._entries: dict[str, JsonValue] | None = None
        self._loading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._changes = 0
        self._written = 0

    async def get(self, key: str) -> JsonValue:
        """Return the value of `key`, or ``None``."""
        return (await self._loaded()).get(key)

    async def entries(self) -> dict[str, JsonValue]:
        """Return all entries, oldest first."""
        return dict(await self._loaded())

    async def put(self, key: str, value: JsonValue) -> None:
        """Store `value` as the newest entry; when it returns, it is on disk.

        Raises:
            OSError: it cannot be written. It is still known to this process.
        """
        entries = await self._loaded()
        entries.pop(key, None)
        entries[key] = value
        for oldest in list(entries)[: max(0, len(entries) - self._size)]:
            del entries[oldest]
        await self._write(entries)

    async def drop(self, keys: Iterable[str]) -> None:
        """Remove the entries of `keys` that exist.

        Raises:
            OSError: as `put`.
        """
        entries = await self._loaded()
        known = [key for key in keys if key in entries]
        for key in known:
            del entries[key]
        if known:
            await self._write(entries)

    async def _loaded(self) -> dict[str, JsonValue]:
        async with self._loading:
            if self._entries is None:
                self._entries = await asyncio.to_thread(_read, self._file)
            return self._entries

    async def _write(self, entries: dict[str, JsonValue]) -> None:
        self._changes += 1
        change = self._changes
        async with self._writing:
            if self._written >= change:
                return
            covered, text = self._changes, json.dumps(entries, ensure_ascii=False)
            await finish_in_thread(partial(replace_file, self._file, text))
            self._written = covered


@dataclass(slots=True)
class ShownDraft:
    """A message that shows a draft.

    Attributes:
        shown: its text; ``None`` after an edit of unknown outcome.
    """

    message_id: str
    shown: RichText | None


@dataclass(slots=True)
class DeliveryMemory:
    """What outlives a connection, because each start of a channel makes a new one.

    Attributes:
        leftovers: visible drafts on disk, as ``<chat> <message>``.
        begun: number of pieces sent of messages of several pieces, on disk, by idempotency key.
        sent: number of pieces sent in this process, by idempotency key.
        drafts: chat and draft to the message that shows it.
        own: the leftovers of this process.
    """

    leftovers: Records
    begun: Records
    sent: Recent[str, int] = field(default_factory=Recent)
    drafts: Recent[tuple[str, str], ShownDraft] = field(default_factory=Recent)
    own: set[str] = field(default_factory=set)


def build_memory(ctx: PluginContext) -> DeliveryMemory:
    """Return the memory of a plugin's channel, for ``ctx.shared``."""
    folder = ctx.data_dir
    return DeliveryMemory(Records(folder / "shown-drafts.json"), Records(folder / "begun.json"))


def _read(file: Path) -> dict[str, JsonValue]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    from loguru import logger

    kept = file.replace(corrupt_name(file))
    logger.error("'{}' is damaged and kept as '{}'; it starts empty", file, kept)
    return {}
