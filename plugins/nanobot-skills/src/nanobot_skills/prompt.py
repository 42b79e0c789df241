"""The parts of the system prompt: the text of active skills, and the list of the others."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot_core import ContextBlock, shorten
from nanobot_skills.library import Library, LoadedSkill
from nanobot_skills.skill import MAX_DESCRIPTION_CHARS

READER = "read_skill"
"""Name of the tool that reads skills."""
MIN_DESCRIPTION_CHARS = 40
"""Descriptions are shortened to this before a skill is left out of the list."""
_CHARS_PER_TOKEN = 4
_INTRO = (
    "A skill describes how to do one kind of task well. When a task fits a description, read the "
    f"skill with `{READER}` before you begin, and follow it."
)


def build_blocks(
    skills: Sequence[LoadedSkill], tools: Sequence[str], library: Library
) -> list[ContextBlock]:
    """Return the passages for the system prompt.

    The same skills and tools give the same bytes.

    Args:
        skills: those that the sender gets, by name.
        tools: names of the offered tools; a skill that requires another one is not mentioned.
        library: knows the limits, and logs what they leave out.
    """
    offered = frozenset(tools)
    possible = [each for each in skills if offered.issuperset(each.skill.requires.tools)]
    limit = library.settings.max_active_tokens
    active = _fitting(possible, limit * _CHARS_PER_TOKEN, library)
    blocks = []
    if active:
        text = "\n\n".join(map(_render_active, active))
        blocks.append(
            ContextBlock(
                name="Active Skills", text=text, placement="stable", position=200, max_tokens=limit
            )
        )
    others = [each for each in possible if each not in active] if READER in offered else []
    limit = library.settings.max_list_tokens
    if others and (text := _render_list(others, limit * _CHARS_PER_TOKEN, library)):
        blocks.append(
            ContextBlock(
                name="Skills", text=text, placement="stable", position=300, max_tokens=limit
            )
        )
    return blocks


def _fitting(skills: Sequence[LoadedSkill], max_chars: int, library: Library) -> list[LoadedSkill]:
    """Return the active skills whose text fits; the others are read on request."""
    chosen: list[LoadedSkill] = []
    for each in skills:
        if not each.is_active:
            continue
        length = len(_render_active(each)) + 2
        if length <= max_chars:
            chosen.append(each)
            max_chars -= length
        else:
            library.log_once(
                "WARNING",
                f"'{each.name}' is not active, because the active skills are longer than "
                "skills.max_active_tokens",
            )
    return chosen


def _render_active(each: LoadedSkill) -> str:
    return f"## {each.name}\n\n{each.skill.body}"


def _render_list(skills: Sequence[LoadedSkill], max_chars: int, library: Library) -> str:
    """Return a line for each skill; descriptions are shortened before a skill is left out."""
    kept, note = list(skills), ""
    while kept:
        low, high = MIN_DESCRIPTION_CHARS, MAX_DESCRIPTION_CHARS
        if len(_render_lines(kept, low, note)) <= max_chars:
            while low < high:  # the longest descriptions that fit
                middle = (low + high + 1) // 2
                fits = len(_render_lines(kept, middle, note)) <= max_chars
                low, high = (middle, high) if fits else (low, middle - 1)
            return _render_lines(kept, low, note)
        # What packages install goes first, and the skills of the owner and the workspace last.
        installed = [each for each in kept if not each.found.place.is_private]
        kept.remove((installed or kept)[-1])
        note = f"\n- {len(skills) - len(kept)} more that are not listed"
        library.log_once(
            "WARNING", "not every skill is listed, because the list exceeds skills.max_list_tokens"
        )
    return ""


def _render_lines(skills: Sequence[LoadedSkill], max_chars: int, note: str) -> str:
    lines = [f"- **{each.name}** ({_location(each)}): {_about(each, max_chars)}" for each in skills]
    return f"{_INTRO}\n\n" + "\n".join(lines) + note


def _about(each: LoadedSkill, max_chars: int) -> str:
    if each.missing:
        return f"unavailable, needs {' and '.join(each.missing)}"
    return shorten(each.skill.description, max_chars)


def _location(each: LoadedSkill) -> str:
    place = each.found.place
    return each.found.folder.as_posix() if place.is_writable else place.label
