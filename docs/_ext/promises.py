"""The promises of the plugin system with the tests that prove them."""

from __future__ import annotations

from pathlib import Path

from tests import promises


def render_promises() -> str:
    """Return all promises, by group."""
    return promises.render_promises(Path(__file__).resolve().parents[2])
