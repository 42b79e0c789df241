"""Separates thinking from an answer, in the forms that models use, in linear time.

A model's server should give its thinking in a separate field. If it does not, the thinking is part
of the text, between tags that depend on the model. An answer may speak of such tags as well,
so they count only where models put them:

- at the beginning of the answer, and again behind a passage of thinking there;
- further down, a ``<think>`` that begins a line outside a code block and is closed later;
- a closing tag on a line of its own, when no thinking came before it: some templates put the
  opening tag into the prompt, and everything before the closing one is thinking.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CHANNEL_ENDS = (
    "<|end|>", "<|call|>", "<|return|>", "<|start|>assistant", "<|channel|>final<|message|>",
)  # fmt: skip
_CLOSINGS: dict[str, tuple[str, ...]] = {
    "<think>": ("</think>",),
    "<thinking>": ("</thinking>",),
    "<thought>": ("</thought>",),
    "<reasoning>": ("</reasoning>",),
    "<seed:think>": ("</seed:think>",),
    "[THINK]": ("[/THINK]",),
    "◁think▷": ("◁/think▷",),
    "<|channel>thought": ("<channel|>",),
    "<|channel|>analysis<|message|>": _CHANNEL_ENDS,
    "<|channel|>commentary": _CHANNEL_ENDS,
    "<|channel|>commentary<|message|>": _CHANNEL_ENDS,
}
"""Tags that begin a passage of thinking, and those that end it.

Seed, Mistral's Magistral, Kimi, Gemma and gpt-oss have tags of their own.
"""
_MARKS = ("</think>", "</thinking>", "</thought>", "</reasoning>", *_CHANNEL_ENDS)
"""Left out at the beginning of an answer."""
_IN_LINES = ("<think>", "<thinking>")
"""Tags that may appear further down."""
_LONE = tuple(f"{tag}{end}" for tag in ("</think>", "</thinking>") for end in ("", "\n", "\r"))
"""What makes thinking of everything before it."""
_AT_START = (*_CLOSINGS, *_MARKS)
_MAX_TAG_CHARS = max(map(len, (*_AT_START, *_LONE)))
_FIRST = frozenset(tag[0] for tag in (*_AT_START, *_LONE))
_PATTERNS = {tag: re.compile("|".join(map(re.escape, ends))) for tag, ends in _CLOSINGS.items()}

_SPACES = re.compile(r"\s+")
_MAX_INDENT = 3
"""Spaces before a tag; more of them make a code block."""
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})")


class Portion(NamedTuple):
    """What has become certain of an answer.

    Attributes:
        visible: the next piece of the answer.
        thought: the next piece of the thinking.
        is_void: all that was visible before this portion is thinking as well.
    """

    visible: str = ""
    thought: str = ""
    is_void: bool = False


class _Parts:
    """A portion in the making."""

    def __init__(self) -> None:
        self.visible: list[str] = []
        self.thought: list[str] = []
        self.is_void = False

    def declare_void(self) -> None:
        self.thought += self.visible
        self.visible.clear()
        self.is_void = True

    def portion(self) -> Portion:
        return Portion("".join(self.visible), "".join(self.thought), self.is_void)


class ThoughtFilter:
    """Separates the thinking from an answer that arrives in pieces.

    Feed it deltas of any size; a tag may be split anywhere. A passage at the beginning that is
    never closed is thinking to its end. Each character is examined a limited number of times.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._opening = ""
        self._held: list[str] | None = None
        """A passage further down, which belongs to the answer unless it is closed."""
        self._is_at_start = True
        self._is_line_start = True
        self._indent = 0
        self._line: list[str] = []
        self._fence = ""
        self._has_thought = False

    def feed(self, delta: str) -> Portion:
        """Return the part of the text that has become certain."""
        parts = _Parts()
        text, self._pending = self._pending + delta, ""
        position = 0
        while position < len(text):
            if self._opening:
                position = self._think(text, position, parts)
            elif not self._is_line_start:
                position = self._speak(text, position, parts)
            elif space := _SPACES.match(text, position):
                position = self._indented(text, space, parts)
            else:
                position = self._begin(text, position, parts)
        return parts.portion()

    def finish(self) -> Portion:
        """Return the rest when no more text comes."""
        parts = _Parts()
        rest, self._pending = self._pending, ""
        if self._held is not None:
            parts.visible = [*self._held, rest]
        elif self._opening:
            parts.thought.append(rest)
        elif rest in self._tags():
            self._take(rest, parts)
        else:
            parts.visible.append(rest)
        return parts.portion()

    def _think(self, text: str, position: int, parts: _Parts) -> int:
        """Consume thinking up to its closing tag, or up to what may be the beginning of one."""
        thought = parts.thought if self._held is None else self._held
        found = _PATTERNS[self._opening].search(text, position)
        if found is None:
            end = _partial_start(text, position, _CLOSINGS[self._opening])
            thought.append(text[position:end])
            self._pending = text[end:]
            return len(text)
        thought.append(text[position : found.start()])
        if self._held is not None:
            parts.thought += self._held[1:]  # without the opening tag
        self._held, self._opening, self._has_thought = None, "", True
        self._is_line_start, self._indent = True, 0
        return found.end()

    def _speak(self, text: str, position: int, parts: _Parts) -> int:
        """Consume the rest of a line."""
        end = text.find("\n", position) + 1 or len(text)
        piece = text[position:end]
        parts.visible.append(piece)
        self._line.append(piece)
        if piece.endswith("\n"):
            self._end_line()
        return end

    def _indented(self, text: str, space: re.Match[str], parts: _Parts) -> int:
        """Consume white space at the beginning of a line; of the answer, all of it."""
        if self._is_at_start:
            parts.visible.append(space[0])
            return space.end()
        position = space.start()
        character = text[position]
        if character == "\n":
            return self._speak(text, position, parts)
        self._indent += 1
        self._is_line_start = character == " " and self._indent <= _MAX_INDENT
        parts.visible.append(character)
        self._line.append(character)
        return position + 1

    def _begin(self, text: str, position: int, parts: _Parts) -> int:
        """Look for a tag; text that may become one waits for more text."""
        if text[position] not in _FIRST:
            self._is_at_start = self._is_line_start = False
            return position
        rest = text[position : position + _MAX_TAG_CHARS]
        tags = self._tags()
        if any(tag.startswith(rest) and tag != rest for tag in tags):
            self._pending = text[position:]
            return len(text)
        found = max((tag for tag in tags if rest.startswith(tag)), key=len, default="")
        if found in _LONE and not self._is_at_start and found[-1] == ">":
            found = ""  # words follow on its line
        if found:
            self._take(found, parts)
        else:
            self._is_at_start = self._is_line_start = False
        return position + len(found)

    def _tags(self) -> tuple[str, ...]:
        """Return the tags that count at the beginning of this line."""
        if self._is_at_start:
            return _AT_START
        if self._fence:
            return ()
        return _IN_LINES if self._has_thought else (*_IN_LINES, *_LONE)

    def _take(self, tag: str, parts: _Parts) -> None:
        if tag in _CLOSINGS:
            self._opening = tag
            self._held = None if self._is_at_start else [tag]
        elif not self._is_at_start:
            parts.declare_void()
            self._is_at_start = True
            self._line.clear()
        self._has_thought = self._has_thought or self._held is None

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._is_line_start, self._indent = True, 0
        found = _FENCE.match(line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not line[found.end() :].strip():
            self._fence = ""


def split_thoughts(text: str) -> tuple[str, str]:
    """Return (answer, thoughts) of a complete text, white space at the joints trimmed."""
    thoughts = ThoughtFilter()
    visible, thought, _ = thoughts.feed(text)
    last = thoughts.finish()
    if last.is_void:
        visible, thought = "", visible + thought
    visible, thought = visible + last.visible, thought + last.thought
    return (visible if visible == text else visible.strip()), thought.strip()


def _partial_start(text: str, start: int, tags: tuple[str, ...]) -> int:
    """Return where a tag may begin at the end of `text`; the length of `text` if nowhere."""
    for position in range(max(start, len(text) - _MAX_TAG_CHARS), len(text)):
        if text[position] in _FIRST and any(tag.startswith(text[position:]) for tag in tags):
            return position
    return len(text)
