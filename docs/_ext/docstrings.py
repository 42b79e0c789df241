"""Google-style docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(
    r"^(Args|Attributes|Returns|Raises|All calls raise|Yields|Cancellation):\s*$", re.MULTILINE
)
_LISTS = {"Args", "Attributes", "Raises", "All calls raise"}
_ENTRY = re.compile(r"^    (\w+):\s*(.*)$")
_UNINDENTED = re.compile(r"\n\n(?=\S)")
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in its parts, as Markdown.

    Attributes:
        text: what stands before the first section.
        sections: by title, the text of sections that are sentences (``Returns``).
        entries: by title, name to text of sections that are lists (``Args``, ``Attributes``).
    """

    text: str
    sections: dict[str, str] = field(default_factory=dict)
    entries: dict[str, dict[str, str]] = field(default_factory=dict)


def parse_docstring(doc: str | None) -> Docstring:
    """Return the parts of `doc`; of nothing, empty ones."""
    parts = _SECTION.split(inspect.cleandoc(doc or "") + "\n")
    sections: dict[str, str] = {}
    entries: dict[str, dict[str, str]] = {}
    text = [parts[0].strip()]
    for title, whole in zip(parts[1::2], parts[2::2], strict=True):
        # A paragraph without indentation ends the section.
        body, *after = _UNINDENTED.split(whole, maxsplit=1)
        text += [each.strip() for each in after]
        listed = _entries(body) if title in _LISTS else {}
        if listed:
            entries[title] = listed
        else:
            sections[title] = _markdown(inspect.cleandoc(body))
    return Docstring(_markdown("\n\n".join(text)), sections, entries)


def render_docstring(doc: str | None) -> str:
    """Return the whole of `doc`, its sections as paragraphs and lists."""
    parsed = parse_docstring(doc)
    blocks = [parsed.text]
    for title, listed in parsed.entries.items():
        blocks.append(f"{title}:")
        blocks.append("\n".join(f"- `{name}`: {text}" for name, text in listed.items()))
    blocks += [f"{title}: {text}" for title, text in parsed.sections.items()]
    return "\n\n".join(block for block in blocks if block)


def _entries(body: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in body.splitlines():
        if match := _ENTRY.match(line):
            name, found[match[1]] = match[1], match[2].strip()
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {key: _markdown(text) for key, text in found.items()}


def _markdown(text: str) -> str:
    return _LITERAL.sub(r"`\1`", text)
