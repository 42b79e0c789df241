"""The small store of one plugin: a JSON object in its data folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nanobot_core.disk import corrupt_name
from nanobot_core.errors import StateFull
from nanobot_core.private_file import MAX_BYTES, PrivateFile, PrivateFileDamaged
from nanobot_core.tasks import finish_in_thread

if TYPE_CHECKING:
    from loguru import Logger

    from nanobot_core.messages import JsonObject, JsonValue

T = TypeVar("T")
STATE_FILE: Final = "state.json"
_LOCK_LIMIT_S: Final = 30.0


class FileState:
    """`PluginState` in a file. Every process of nanobot may read and change it.

    Args:
        plugin_id: whose it is.
        path: the file; created with the first value.
        logger: receives what is wrong with the file.
    """

    def __init__(self, plugin_id: str, path: Path, logger: Logger) -> None:
        self._plugin_id = plugin_id
        self._file = PrivateFile(path)
        self._logger = logger
        self._turn = asyncio.Lock()
        self._known: tuple[int, ...] | None = None
        self._values: JsonObject = {}

    async def get(self, key: str, default: JsonValue = None) -> JsonValue:
        """Return the value of a key, or `default`."""
        async with self._turn:
            await finish_in_thread(self._load)
            return deepcopy(self._values.get(key, default))

    async def keys(self) -> tuple[str, ...]:
        """Return the keys, in the order of their first values."""
        async with self._turn:
            await finish_in_thread(self._load)
            return tuple(self._values)

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a value."""
        await self.update(key, lambda _: value)

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await self._change(lambda values: values.pop(key, None))

    async def update(self, key: str, change: Callable[[JsonValue], JsonValue]) -> JsonValue:
        """Replace a value by what `change` returns for it."""

        def put(values: JsonObject) -> JsonValue:
            values[key] = change(values.get(key))
            return values[key]

        return await self._change(put)

    async def _change(self, change: Callable[[JsonObject], T]) -> T:
        # First the tasks of this process, in order; then the other processes.
        async with self._turn, self._file.locked(_LOCK_LIMIT_S):
            await finish_in_thread(self._load)
            values = deepcopy(self._values)
            result = deepcopy(change(values))
            data = self._checked(values)
            if data != self._values:
                await finish_in_thread(partial(self._store, data))
            return result

    def _load(self) -> None:
        """Read the file if it is not the one that was read or written last."""
        facts = self._facts()
        if facts == self._known and facts is not None:
            return
        try:
            self._values = self._file.read() or {}
        except PrivateFileDamaged as error:
            kept = corrupt_name(self._file.path)
            self._file.path.rename(kept)
            log = self._logger.warning
            log("{}; it was renamed to {}", error, kept.name)
            self._values, facts = {}, None
        self._known = facts

    def _store(self, values: JsonObject) -> None:
        self._file.replace(values)
        self._values, self._known = values, self._facts()

    def _facts(self) -> tuple[int, ...] | None:
        try:
            found = self._file.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _checked(self, values: JsonObject) -> JsonObject:
        """Return `values` as they will be read.

        Raises:
            TypeError: a value is no JSON data.
            StateFull: they are too large.
        """
        try:
            text = json.dumps(values, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise TypeError(f"the state of a plugin holds JSON data only: {error}") from error
        if len(text) > MAX_BYTES:
            raise StateFull(self._plugin_id, len(text), MAX_BYTES)
        found: JsonObject = json.loads(text)
        return found
