"""Replace `<!-- generate: … -->` lines in pages by text rendered from the code.

This happens before the page is parsed, so that the rendered headings appear in its contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hook_reference import (
    render_contract,
    render_dataclass,
    render_events,
    render_hooks,
    render_kinds,
)
from promises import render_promises
from settings_reference import render_core_settings, render_plugin_settings

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RENDERERS: dict[str, Callable[..., str]] = {
    "contract": render_contract,
    "core-settings": render_core_settings,
    "dataclass": render_dataclass,
    "events": render_events,
    "hooks": render_hooks,
    "kinds": render_kinds,
    "plugin-settings": render_plugin_settings,
    "promises": render_promises,
}
_MARKER = re.compile(r"^<!-- generate: (.+?) -->$", re.MULTILINE)


def expand(text: str) -> str:
    """Return a page with what its markers stand for.

    Raises:
        KeyError: a marker names no renderer.
    """
    return _MARKER.sub(_render, text)


def _render(match: re.Match[str]) -> str:
    name, *arguments = match[1].split()
    return RENDERERS[name](*arguments)


def _on_source_read(_app: Sphinx, _docname: str, source: list[str]) -> None:
    source[0] = expand(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", _on_source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
