"""The parts of the system prompt: the text of active skills, and the list of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nanobot_core import ContextBlock, shorten
from nanobot_skills.library import Library, LoadedSkill
from nanobot_skills.skill import MAX_DESCRIPTION_CHARS

READER = "read_skill"
"""Name of the tool that reads skills."""
MIN_DESCRIPTION_CHARS = 40
"""Descriptions are shortened to this before a skill is left out of the list."""
_CHARS_PER_TOKEN = 4
_UNAVAILABLE_CHARS = 200
_NOTE_CHARS = 40
"""Room for the line that counts what is left out."""


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
                name="Active Skills",
                text=text,
                placement="stable",
                position=200,
                priority=10,
                max_tokens=limit,
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
    room = max_chars - len(library.introduction) - _NOTE_CHARS
    kept: list[LoadedSkill] = []
    # If not all fit, those that packages install are left out first.
    for each in sorted(skills, key=lambda each: not each.found.place.is_private):
        room -= len(_render_line(each, MIN_DESCRIPTION_CHARS)) + 1
        if room < 0:
            library.log_once(
                "WARNING", "not every skill is listed; raise skills.max_list_tokens or disable some"
            )
            break
        kept.append(each)
    if not kept:
        return ""
    kept.sort(key=lambda each: each.name)
    left_out = len(skills) - len(kept)
    note = f"\n- {left_out} more that are not listed" if left_out else ""
    return _longest(partial(_render_lines, library.introduction, kept, note), max_chars)


def _longest(render: Callable[[int], str], max_chars: int) -> str:
    """Return the list with the longest descriptions with which it fits."""
    low, high = MIN_DESCRIPTION_CHARS, MAX_DESCRIPTION_CHARS
    if len(text := render(high)) <= max_chars:
        return text
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if len(render(middle)) <= max_chars else (low, middle)
    return render(low)


def _render_lines(
    introduction: str, skills: Sequence[LoadedSkill], note: str, description_chars: int
) -> str:
    lines = [_render_line(each, description_chars) for each in skills]
    return f"{introduction}\n\n" + "\n".join(lines) + note


def _render_line(each: LoadedSkill, description_chars: int) -> str:
    place = each.found.place
    location = each.found.folder.as_posix() if place.is_writable else place.label
    return f"- **{each.name}** ({location}): {_about(each, description_chars)}"


def _about(each: LoadedSkill, description_chars: int) -> str:
    if each.missing:
        return shorten(f"unavailable, needs {' and '.join(each.missing)}", _UNAVAILABLE_CHARS)
    about = shorten(each.skill.description, description_chars)
    note = " (not always active until the owner approves it)" if each.awaits_approval else ""
    return about + note
