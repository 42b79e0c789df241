"""Pages of plugins: the panels that they contribute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route

from nanobot_core import (
    NanobotError,
    Panel,
    PanelAction,
    PanelBars,
    PanelDiff,
    PanelPart,
    PanelTable,
    PanelView,
)
from nanobot_page.access import read_form
from nanobot_page.desk.frame import CONFIRMED, one, panel_path

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_page.desk.frame import Frame

MAX_VIEW_CHARS: Final = 2_000
HEIGHT: Final = 100
"""Of the largest bar, in the units of the picture."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a picture: its place, its height, and what it stands for."""

    x: int
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part with the kind of its template, and what the template cannot compute."""

    kind: str
    part: PanelPart
    bars: tuple[Bar, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()


class PanelPages:
    """The pages of one application.

    Args:
        frame: menu, notices and questions.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/desk/panel", self.show, methods=["GET"]),
            Route("/desk/panel", self.act, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show a view of a panel."""
        query = request.query_params
        plugin, view = query.get("plugin", ""), query.get("view", "")[:MAX_VIEW_CHARS]
        panel = await self._find(plugin, query.get("id", ""))
        try:
            shown = await self._frame.foreign(plugin, panel.show(view))
        except NanobotError as error:
            shown, failure = PanelView(parts=()), str(error)
        else:
            failure = ""
        return await self._frame.page(
            request,
            "panel.html",
            status=409 if failure else 200,
            panel=panel,
            failure=failure,
            parts=[_shown(part) for part in shown.parts],
            actions=shown.actions,
            links=shown.links,
            view=view,
            plugin=plugin,
            path_of=lambda name: panel_path(plugin, panel.id, name),
        )

    async def act(self, request: Request) -> Response:
        """Do an action that the view offers; ask first if it says so."""
        form = await read_form(request)
        plugin, view = one(form, "plugin"), one(form, "view")[:MAX_VIEW_CHARS]
        panel = await self._find(plugin, one(form, "id"))
        back = panel_path(plugin, panel.id, view)
        wanted = (one(form, "name"), one(form, "subject"))
        offered = _actions(await self._frame.foreign(plugin, panel.show(view)))
        action = next((each for each in offered if (each.name, each.subject) == wanted), None)
        if action is None:
            gone = "This is not offered any more; nothing was done."
            return self._frame.lead_back(request, gone, back, failed=True)
        if (action.question or action.danger) and CONFIRMED not in form:
            question = action.question or f"{action.label}?"
            return await self._frame.ask(request, form, question, back)
        # What is removed may be what the view shows.
        back = panel_path(plugin, panel.id) if action.danger else back
        work = self._frame.foreign(plugin, panel.act(*wanted))
        return await self._frame.done(request, work, back)

    async def _find(self, plugin: str, panel_id: str) -> Panel:
        for each in await self._frame.panels():
            if (each.plugin, each.value.id) == (plugin, panel_id):
                return each.value
        raise HTTPException(404, "this page does not exist; its plugin may be disabled")


def _actions(view: PanelView) -> Iterator[PanelAction]:
    yield from view.actions
    for part in view.parts:
        if isinstance(part, PanelTable):
            for row in part.rows:
                yield from row.actions


def _shown(part: PanelPart) -> ShownPart:
    if isinstance(part, PanelBars):
        largest = max((amount for _, amount, _ in part.bars), default=0.0)
        scale = HEIGHT / largest if largest > 0 else 0.0
        bars = (
            Bar(x=10 * place, height=max(0.0, amount * scale), label=f"{label}: {words}")
            for place, (label, amount, words) in enumerate(part.bars)
        )
        return ShownPart("bars", part, bars=tuple(bars))
    if isinstance(part, PanelDiff):
        return ShownPart("diff", part, lines=tuple(map(_line, part.text.splitlines())))
    return ShownPart("table" if isinstance(part, PanelTable) else "text", part)


def _line(line: str) -> tuple[str, str]:
    """Return the class and the text of a line of a difference."""
    if line.startswith(("+++", "---", "@@")):
        return "place", line
    return {"+": "added", "-": "removed"}.get(line[:1], "same"), line
