"""Writes what pages say about the code: ``python docs/_ext/generated.py``.

A page marks a place with `<!-- generate: NAME ARGUMENTS -->`; the text follows, and `<!-- end -->`.
It is in the repository, so that the pages of a clone are complete; a test compares it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from command_reference import render_commands
from extras import render_extras
from hook_reference import (
    render_class,
    render_contract,
    render_dataclass,
    render_events,
    render_function,
    render_hooks,
    render_kinds,
)
from promises import render_promises
from settings_reference import render_core_settings, render_plugin_settings

RENDERERS: dict[str, Callable[..., str]] = {
    "class": render_class,
    "commands": render_commands,
    "contract": render_contract,
    "core-settings": render_core_settings,
    "dataclass": render_dataclass,
    "events": render_events,
    "extras": render_extras,
    "function": render_function,
    "hooks": render_hooks,
    "kinds": render_kinds,
    "plugin-settings": render_plugin_settings,
    "promises": render_promises,
}
PAGES = Path(__file__).resolve().parents[1]
_PLACE = re.compile(
    r"^<!-- generate: (.+?) -->\n(?:\n.*?\n<!-- end -->\n)?", re.MULTILINE | re.DOTALL
)


def expand(text: str) -> str:
    """Return a page with the present text in each place.

    Raises:
        KeyError: a marker names no renderer.
    """
    return _PLACE.sub(_render, text)


def _render(match: re.Match[str]) -> str:
    name, *arguments = match[1].split()
    text = RENDERERS[name](*arguments).strip()
    return f"<!-- generate: {match[1]} -->\n\n{text}\n\n<!-- end -->\n"


def stale() -> dict[str, list[str]]:
    """Return the lines that the pages lack, by page; those of absent plugins are left alone."""
    found = {}
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text("utf-8")
        known = set(text.splitlines())
        missing = [line for line in expand(text).splitlines() if line not in known]
        if missing:
            found[page.relative_to(PAGES).as_posix()] = missing
    return found


if __name__ == "__main__":
    for page in PAGES.rglob("*.md"):
        page.write_text(expand(page.read_text("utf-8")), "utf-8")
