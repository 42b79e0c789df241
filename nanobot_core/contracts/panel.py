"""Panel: what a plugin shows to its owner, in whatever program displays panels.

A panel is plain data, so that a web page and a terminal can show it without knowing the plugin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TypeAlias

from nanobot_core.errors import PanelError
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelAction(Repaired):
    """Something that the owner can do.

    Attributes:
        name: what `Panel.act` receives, such as ``run``.
        label: for a button.
        subject: what it applies to, such as the id of a job.
        question: asked before; empty if it can be undone or harms nothing.
        danger: it removes something.
    """

    name: str
    label: str
    subject: str = ""
    question: str = ""
    danger: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelLink(Repaired):
    """Another view of the same panel.

    Attributes:
        label: for the link.
        view: what `Panel.show` receives.
    """

    label: str
    view: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelText(Repaired):
    """A paragraph, or text with its line breaks if it is `preformatted`. Not Markdown."""

    text: str
    title: str = ""
    preformatted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelDiff(Repaired):
    """A difference in the unified format of ``difflib.unified_diff``."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow(Repaired):
    """A row of a table: a cell for each column, and what can be done with it."""

    cells: tuple[str, ...]
    actions: tuple[PanelAction, ...] = ()
    links: tuple[PanelLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTable(Repaired):
    """A table.

    Attributes:
        columns: their headings.
        rows: in the order to show.
        title: heading.
        empty: shown instead of a table without rows.
    """

    columns: tuple[str, ...]
    rows: tuple[PanelRow, ...] = ()
    title: str = ""
    empty: str = "Nothing here."


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelBars(Repaired):
    """Amounts to compare, such as tokens per day.

    Attributes:
        title: heading, with the unit.
        bars: label, amount and the amount in words, in the order to show.
    """

    title: str
    bars: tuple[tuple[str, float, str], ...]


PanelPart: TypeAlias = PanelText | PanelDiff | PanelTable | PanelBars


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelView:
    """What a panel shows now.

    Attributes:
        parts: from top to bottom.
        actions: what can be done with the whole.
        links: other views.
    """

    parts: tuple[PanelPart, ...]
    actions: tuple[PanelAction, ...] = ()
    links: tuple[PanelLink, ...] = ()


async def _no_action(_name: str, _subject: str) -> str:
    """Refuse every action."""
    raise PanelError("this panel has no actions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A page of a plugin for its owner.

    Attributes:
        id: unique in its plugin, for addresses: ``[a-z0-9-]``.
        title: a word or two for a menu, such as ``Jobs``.
        show: returns what a view shows; the first one has the empty name. Reads only. Raises
            `PanelError` if there is no such view, or it cannot be read.
        act: does an action with a subject, and returns what was done in one sentence. Raises
            `NanobotError` with the reason if it cannot be done, such as `PanelError`.
        summary: one line about the panel.
    """

    id: str
    title: str
    show: Callable[[str], Awaitable[PanelView]]
    act: Callable[[str, str], Awaitable[str]] = field(default=_no_action)
    summary: str = ""
