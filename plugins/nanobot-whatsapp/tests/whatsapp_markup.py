"""How WhatsApp's clients show markup, after its help page and reports of users."""

from __future__ import annotations

import re

_JOINT = "\u200c"
_BLOCK = re.compile(r"```([\s\S]+?)```")
_URL = re.compile(r"(https?://\S+)")
_ALONE = r"[^\W_]"
_STYLED = re.compile(
    rf"(?<!{_ALONE})(?<!{_JOINT})([*_~])(?![\s{_JOINT}])(.+?)(?<![\s{_JOINT}])\1(?!{_ALONE})"
)
_KINDS = {"*": "bold", "_": "italic", "~": "strikethrough"}
Spans = list[tuple[str, str]]


def read_markup(markup: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the text that people see, and kind and words of its formatted parts."""
    spans: Spans = []
    pieces = _BLOCK.split(markup)
    shown = ""
    for index, piece in enumerate(pieces):
        if index % 2:
            after = pieces[index + 1]
            is_alone = shown[-1:] in {"", "\n"} and after[:1] in {"", "\n"}
            spans.append(("pre" if is_alone else "code", piece))
            shown += piece
        else:
            is_start = index == 0
            first, *rest = piece.split("\n")
            lines = [_words(first, spans) if not is_start else _line(first, spans)]
            shown += "\n".join([*lines, *(_line(line, spans) for line in rest)])
    return shown.replace(_JOINT, ""), tuple((k, w.replace(_JOINT, "")) for k, w in spans)


def _line(line: str, spans: Spans) -> str:
    if not line.startswith("> "):
        return _words(line, spans)
    words = _words(line[2:], spans)
    spans.append(("quote", words))
    return words


def _words(line: str, spans: Spans) -> str:
    parts = _URL.split(line)
    return "".join(part if n % 2 else _styled(part, spans) for n, part in enumerate(parts))


def _styled(text: str, spans: Spans) -> str:
    found = _STYLED.search(text)
    if found is None:
        return text
    words = _styled(found[2], spans)
    spans.append((_KINDS[found[1]], words))
    return text[: found.start()] + words + _styled(text[found.end() :], spans)
