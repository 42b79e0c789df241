"""``/skills``, and the check for ``nanobot doctor``."""

from __future__ import annotations

from nanobot_core import CheckResult, CommandCall, PluginContext, shorten
from nanobot_skills.library import Library, Skills
from nanobot_skills.overview import (
    NoSuchSkill,
    approve_by_name,
    describe_state,
    find_skill,
    render_skill,
)

_SHOWN_CHARS = 200


async def answer_skills(ctx: PluginContext, call: CommandCall) -> str:
    """Return the reply to ``/skills``, in Markdown."""
    library = ctx.shared(Library)
    skills = await library.load()
    match call.text.split():
        case []:
            return _list(library, skills, is_owner=call.is_owner)
        case ["show" | "approve", _] if not call.is_owner:
            return "/skills show and /skills approve are for the owner only."
        case [("show" | "approve") as verb, name]:
            return await _one(library, skills, verb, name)
        case _:
            return "Usage: /skills, /skills show NAME, /skills approve NAME"


async def check_skills(ctx: PluginContext) -> CheckResult:
    """Report skills that cannot be loaded, and those that await approval."""
    skills = await ctx.shared(Library).load()
    if found := [*skills.problems, *map(str, skills.broken)]:
        return CheckResult(
            status="warning", message="; ".join(found[:5]), remedy="see: nanobot skills check"
        )
    if names := [each.name for each in skills.usable() if each.awaits_approval]:
        return CheckResult(
            status="warning",
            message=f"awaiting approval: {', '.join(names)}",
            remedy="read each with: nanobot skills show NAME, then: nanobot skills approve NAME",
        )
    return CheckResult(status="ok", message=f"{len(skills.usable())} skills")


def _list(library: Library, skills: Skills, *, is_owner: bool) -> str:
    lines = []
    for each in library.visible(skills, is_owner=is_owner):
        about = shorten(each.skill.description, _SHOWN_CHARS)
        lines.append(f"- **{each.name}** ({describe_state(each)}): {about}")
    if is_owner:
        lines += [f"- {problem}" for problem in (*skills.problems, *map(str, skills.broken))]
    return "Skills:\n\n" + "\n".join(lines) if lines else "There are no skills."


async def _one(library: Library, skills: Skills, verb: str, name: str) -> str:
    try:
        if verb == "show":
            return render_skill(find_skill(skills, name))
        return await approve_by_name(library, skills, name)
    except NoSuchSkill as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."
