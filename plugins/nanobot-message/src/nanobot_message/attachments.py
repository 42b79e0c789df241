"""Files of a message: checked, and copied as they are when it is sent.

A message may wait for hours before it is delivered. The copy is what was checked: neither a file
that changes or goes meanwhile nor a link that replaces it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import MediaTooLarge, PathGuard, ToolFailed, ToolInputError, shorten

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ToolContext
    from nanobot_message.settings import MessageSettings

_READ_BYTES = 1024 * 1024
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|data:", re.IGNORECASE)


class Attachments:
    """Makes copies of the files that a model names.

    Args:
        settings: which files may be sent.
    """

    def __init__(self, ctx: PluginContext, settings: MessageSettings) -> None:
        self._store = ctx.media
        self._settings = settings

    async def copy(self, context: ToolContext, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of copies, in order; nothing is copied unless every file may be sent.

        Args:
            context: the circumstances of the call.
            names: as the model wrote them.

        Raises:
            ToolInputError: a file is named wrongly, or cannot be sent as it is.
            ToolDenied: a file may not be sent.
            ToolFailed: the disk has no room for a copy.
        """
        limit = self._settings.max_files
        if len(names) > limit:
            msg = f"media has {len(names)} files and {limit} are allowed; send several messages"
            raise ToolInputError(msg)
        guard, paths = await asyncio.to_thread(self._check, context, names)
        return tuple([await self._copy(guard, path) for path in paths])

    def _check(self, context: ToolContext, names: Sequence[str]) -> tuple[PathGuard, list[Path]]:
        roots = self._settings.extra_roots if context.is_owner else ()
        guard = context.files.extended(read_roots=roots)
        return guard, [self._check_file(guard, name) for name in names]

    def _check_file(self, guard: PathGuard, name: str) -> Path:
        if _ADDRESS.match(name):
            msg = (
                f"'{shorten(name, 100)}' is an address, not a file; put a link into the "
                "content, or save the file into the workspace and name that"
            )
            raise ToolInputError(msg)
        path = guard.resolve_read(name)
        with guard.open_read(path) as file:
            size = os.fstat(file.fileno()).st_size
        if size == 0:
            msg = f"'{path}' is empty, and chats do not accept empty files"
            raise ToolInputError(msg)
        if size > self._settings.max_file_bytes:
            raise self._too_large(path)
        return path

    async def _copy(self, guard: PathGuard, path: Path) -> str:
        limit = self._settings.max_file_bytes
        async with contextlib.aclosing(_pieces(guard, path)) as content:
            try:
                return str(await self._store.save(path.name, content, max_bytes=limit))
            except MediaTooLarge as error:
                raise self._too_large(path) from error
            except OSError as error:
                msg = f"'{path}' cannot be copied for sending: {error.strerror}"
                raise ToolFailed(msg) from error

    def _too_large(self, path: Path) -> ToolInputError:
        limit = self._settings.max_file_bytes
        return ToolInputError(
            f"'{path}' is larger than {limit:,} bytes, the most that may be sent; send a part of "
            "it or compress it"
        )


async def _pieces(guard: PathGuard, path: Path) -> AsyncGenerator[bytes, None]:
    """Yield the content of a file, opened again through `guard`."""
    with await _open(guard, path) as file:
        while piece := await asyncio.to_thread(file.read, _READ_BYTES):
            yield piece


async def _open(guard: PathGuard, path: Path) -> BufferedReader:
    opening = asyncio.get_running_loop().run_in_executor(None, guard.open_read, path)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[BufferedReader]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
