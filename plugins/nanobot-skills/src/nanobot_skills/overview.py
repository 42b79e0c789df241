"""What the owner sees of skills: their state in a few words, and their content."""

from __future__ import annotations

from dataclasses import replace

from nanobot_core import NanobotError
from nanobot_skills.library import Library, LoadedSkill, Skills


class NoSuchSkill(NanobotError):
    """There is no usable skill of that name."""

    def __init__(self, name: str, reason: str = "") -> None:
        why = reason or "see: nanobot skills list"
        super().__init__(f"there is no skill '{name}'; {why}")


def find_skill(skills: Skills, name: str) -> LoadedSkill:
    """Return the usable skill of a name.

    Raises:
        NoSuchSkill: the skill does not exist, or is broken; the error says why.
    """
    for each in skills.usable():
        if each.name == name:
            return each
    broken = [str(each) for each in skills.broken if each.found.name == name]
    raise NoSuchSkill(name, "; ".join(broken))


async def approve_by_name(library: Library, skills: Skills, name: str) -> str:
    """Approve the content of a skill as it was loaded; return what to show the owner.

    Raises:
        NoSuchSkill: as for `find_skill`.
    """
    each = find_skill(skills, name)
    if each.is_approved:
        return f"'{name}' needs no approval."
    await library.approve(each)
    return f"Approved this content of '{name}':\n\n{render_skill(replace(each, is_approved=True))}"


def describe_state(each: LoadedSkill) -> str:
    """Return the state of a skill in a few words."""
    if each.shadowed_by:
        return f"replaced by {each.shadowed_by}"
    if each.missing:
        return f"unavailable, needs {' and '.join(each.missing)}"
    if each.awaits_approval:
        return "awaiting approval"
    tools = " and ".join(each.skill.requires.tools)
    state = "active" if each.skill.always else "on request"
    return f"{state}, if {tools} is offered" if tools else state


def render_skill(each: LoadedSkill) -> str:
    """Return everything about a skill that a person must know to judge it."""
    skill = each.skill
    requires = [
        f"{kind} {', '.join(names)}"
        for kind, names in (
            ("programs", skill.requires.bins),
            ("variables", skill.requires.env),
            ("tools", skill.requires.tools),
        )
        if names
    ]
    lines = [
        f"{skill.name}: {skill.description}",
        "",
        f"File: {each.found.shown}",
        f"From: {each.found.place.label}",
        f"State: {describe_state(each)}",
        *([f"Requires: {'; '.join(requires)}"] if requires else []),
        f"SHA-256: {skill.digest}",
    ]
    return "\n".join(lines) + f"\n\n{skill.body}"
