"""Writes the page of public names: ``python docs/_ext/public_names.py``."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

MODULES = (
    "nanobot_core",
    "nanobot_core.tools",
    "nanobot_core.chat",
    "nanobot_core.net",
    "nanobot_core.providers",
    "nanobot_core.testing",
)
PAGE = Path(__file__).resolve().parents[1] / "plugins" / "public-names.md"
INTRODUCTION = """\
# Public names

What plugins may import, by subject. A test compares this page with the modules; after a change of
names, run

```sh
python3 docs/_ext/public_names.py
```
"""
_WIDTH = 100


def render_public_names() -> str:
    """Return the page."""
    blocks = [INTRODUCTION]
    for name in MODULES:
        blocks += [f"## `{name}`\n", *_groups(name)]
    return "\n".join(blocks)


def _groups(module_name: str) -> list[str]:
    """Return a paragraph for each subject, which is the module that defines the names."""
    module = importlib.import_module(module_name)
    homes: dict[str, str] = getattr(module, "_HOMES", {})
    groups: dict[str, list[str]] = {}
    for name in sorted(module.__all__):
        subject = homes.get(name, module_name).rpartition(".")[2].replace("_", " ")
        groups.setdefault(subject, []).append(f"`{name}`")
    return [
        textwrap.fill(
            f"**{subject}**: {', '.join(names)}",
            _WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for subject, names in sorted(groups.items())
    ]


if __name__ == "__main__":
    PAGE.write_text(render_public_names(), "utf-8")
