"""Links between pages lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
PAGES = ("*.md", "docs/**/*.md", "plugins/*/*.md", "changelog.d/*.md")


def link_findings(root: Path) -> list[str]:
    """Report each link in the pages below `root` to a missing file."""
    return [
        f"{page.relative_to(root).as_posix()}: links to '{target}', which does not exist"
        for page in _pages(root)
        for target in _targets(page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]


def _pages(root: Path) -> Iterator[Path]:
    for pattern in PAGES:
        for page in sorted(root.glob(pattern)):
            if "_build" not in page.relative_to(root).parts:
                yield page


def _targets(text: str) -> Iterator[str]:
    prose = INLINE_CODE.sub("", FENCED.sub("", text))
    for match in LINK.finditer(prose):
        target = unquote(match[1].partition("#")[0])
        if target and not SCHEME.match(target):
            yield target
