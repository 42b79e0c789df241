"""The journal: the newest beats, on disk, for the next decision and for people."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core import corrupt_name, finish_in_thread, replace_file

if TYPE_CHECKING:
    from nanobot_core import PluginContext

FILE: Final = "beats.json"
KEPT: Final = 10
"""Beats in the file; older ones are dropped."""


class Beat(BaseModel):
    """A beat that does something.

    Attributes:
        id: of its work.
        at: when it began.
        tasks: what it does, for people.
        result: for people; empty until the work has ended.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    at: datetime
    tasks: str
    result: str = ""


class Notes(BaseModel):
    """The content of the file.

    Attributes:
        beats: oldest first.
        has_chat: whether the last beat knew a chat for its answer.
    """

    model_config = ConfigDict(frozen=True)

    beats: tuple[Beat, ...] = ()
    has_chat: bool = True


class Journal:
    """Reads and writes the file. A damaged file is renamed and counts as empty.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._file: Path = ctx.data_dir / FILE
        self._writing = asyncio.Lock()

    async def read(self) -> Notes:
        """Return the notes."""
        return await asyncio.to_thread(self._read)

    async def put(self, beat: Beat) -> None:
        """Add a beat, or replace the one with its id."""
        async with self._writing:
            notes = await self.read()
            beats = (*(each for each in notes.beats if each.id != beat.id), beat)
            await self._write(notes.model_copy(update={"beats": beats[-KEPT:]}))

    async def finish(self, beat_id: str, result: str) -> None:
        """Note the result of a beat."""
        for beat in (await self.read()).beats:
            if beat.id == beat_id:
                await self.put(beat.model_copy(update={"result": result}))

    async def note_chat(self, *, is_known: bool) -> None:
        """Note whether a beat knew a chat for its answer."""
        async with self._writing:
            notes = await self.read()
            if notes.has_chat != is_known:
                await self._write(notes.model_copy(update={"has_chat": is_known}))

    async def _write(self, notes: Notes) -> None:
        try:
            await finish_in_thread(partial(replace_file, self._file, notes.model_dump_json()))
        except OSError as error:
            self._log.warning("cannot store {}: {}", self._file, error)

    def _read(self) -> Notes:
        try:
            return Notes.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return Notes()
        except ValidationError as error:
            kept = corrupt_name(self._file)
            self._file.rename(kept)
            self._log.warning("{} is damaged and was renamed to {}: {}", self._file, kept, error)
            return Notes()
