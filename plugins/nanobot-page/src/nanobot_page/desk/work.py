"""Work that takes longer than a request: it runs beside the pages, which show its state."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from starlette.requests import Request

    from nanobot_core import PluginContext
    from nanobot_page.pages import Pages

BRIEF_S: Final = 0.5
"""How long `Work.start` waits for work that ends at once, such as a refusal."""


class Work:
    """Runs one piece of work at a time, until it ends, is cancelled, or the plugin stops.

    Args:
        ctx: the context of the plugin, which owns the task.
        name: of the task.
    """

    def __init__(self, ctx: PluginContext, name: str) -> None:
        self._ctx = ctx
        self._name = name
        self._cancelled: asyncio.Event | None = None

    @property
    def is_running(self) -> bool:
        """Whether a piece of work has not ended."""
        return self._cancelled is not None

    async def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a piece of work, and return when it has ended, at the latest after `BRIEF_S`.

        Check `is_running` first, and do not wait between the two.
        """
        cancelled, ended = asyncio.Event(), asyncio.Event()
        self._cancelled = cancelled
        self._ctx.spawn(self._run(work, cancelled, ended), name=self._name)
        with suppress(TimeoutError):
            async with asyncio.timeout(BRIEF_S):
                await ended.wait()

    def cancel(self) -> None:
        """Cancel the work; do nothing if it has ended."""
        if self._cancelled is not None:
            self._cancelled.set()

    async def _run(
        self, work: Coroutine[Any, Any, None], cancelled: asyncio.Event, ended: asyncio.Event
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(work, name=self._name)
                stopping = group.create_task(cancelled.wait(), name=f"{self._name} stops")
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                stopping.cancel()
        finally:
            self._cancelled = None
            ended.set()


def parts_answer(
    request: Request, parts: Mapping[str, str], *, is_busy: bool, **values: object
) -> JSONResponse:
    """Return the parts of a page for ``static/watch.js``, which replaces those that have changed.

    Args:
        request: of the script.
        parts: id of an element to the template of its content.
        is_busy: the parts will change without a request of this page.
        **values: of the templates.
    """
    pages: Pages = request.app.state.pages
    html = {name: pages.html(f"desk/{template}", **values) for name, template in parts.items()}
    return JSONResponse({"busy": is_busy, "parts": html})
