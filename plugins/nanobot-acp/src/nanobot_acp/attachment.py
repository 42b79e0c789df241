"""Files that an editor sends with a prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nanobot_core import CommandLine


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file by its content."""

    name: str
    data: bytes


Keep: TypeAlias = Callable[[Sequence[Attachment]], Awaitable[tuple[str, ...]]]
"""Keeps files and returns their absolute paths."""


def media_of(line: CommandLine) -> Keep:
    """Return what keeps files with those that people send in chats.

    The plugin is started for it only, because most prompts have no files.
    """

    async def keep(attachments: Sequence[Attachment]) -> tuple[str, ...]:
        if not attachments:
            return ()
        async with line() as ctx:
            paths = [await ctx.media.save(each.name, _whole(each.data)) for each in attachments]
        return tuple(map(str, paths))

    return keep


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
