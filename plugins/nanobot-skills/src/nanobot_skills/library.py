"""Library: the skills of all sources, in their order of precedence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from nanobot_core import Contributed, Folder, PluginContext, prompt
from nanobot_skills.approval import approve_skill, load_approvals
from nanobot_skills.contribution import SkillSource, skills_sources
from nanobot_skills.front_matter import SkillInvalid
from nanobot_skills.requirement import RequirementCheck
from nanobot_skills.settings import SkillsSettings
from nanobot_skills.skill import Skill
from nanobot_skills.source import Found, Place, find_skills

BUILT_IN = Path(__file__).parent / "builtin"
WORKSPACE_FOLDERS = ("skills", ".agents/skills")
_MAX_LOGGED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill and its state.

    Attributes:
        found: where it is.
        skill: its content.
        missing: required programs and variables that do not exist, in words.
        is_approved: the owner has approved its content, or it needs no approval.
        shadowed_by: the source that has another skill of this name and comes before, or an empty
            string.
    """

    found: Found
    skill: Skill
    missing: tuple[str, ...]
    is_approved: bool
    shadowed_by: str = ""

    @property
    def name(self) -> str:
        """The skill's name."""
        return self.skill.name

    @property
    def is_active(self) -> bool:
        """Whether its text belongs in the prompt."""
        return self.skill.always and self.is_approved and not self.missing

    @property
    def awaits_approval(self) -> bool:
        """Whether its text belongs in the prompt once the owner approves it."""
        return self.skill.always and not self.is_approved


@dataclass(frozen=True, slots=True)
class BrokenSkill:
    """A skill that cannot be loaded, and why."""

    found: Found
    error: SkillInvalid

    def __str__(self) -> str:
        return f"{self.found.shown}:{self.error.line}: {self.error.reason}"


@dataclass(frozen=True, slots=True)
class Skills:
    """What a library has.

    Attributes:
        loaded: the enabled skills in their order of precedence, shadowed ones included.
        broken: those that cannot be loaded.
        problems: what else is wrong, in sentences.
    """

    loaded: tuple[LoadedSkill, ...]
    broken: tuple[BrokenSkill, ...]
    problems: tuple[str, ...]

    def usable(self) -> list[LoadedSkill]:
        """Return the skills that no other one shadows, by name."""
        return sorted(
            (each for each in self.loaded if not each.shadowed_by), key=lambda each: each.name
        )


class Library:
    """Loads skills; one object per application, ``ctx.shared(Library)``.

    A SKILL.md is read again only when its size or time has changed. Blocks while it is created.

    Attributes:
        settings: the section ``skills``.
        introduction: what the prompt says about skills; the owner can replace the text.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.introduction: str = prompt(ctx, "nanobot_skills:skills")
        self.settings: SkillsSettings = ctx.settings(SkillsSettings)
        self._ctx = ctx
        self._workspace = Folder(ctx.workspace)
        self._requirements = RequirementCheck(ctx)
        # What this package installs does not change while the program runs.
        self._built_in = Place(Folder(BUILT_IN), PurePath(), "built-in")
        self._built_in_skills, _ = find_skills(self._built_in)
        self._read: dict[PurePath, tuple[Found, Skill | SkillInvalid]] = {}
        self._former: tuple[object, Skills] = (None, Skills((), (), ()))
        self._loading = asyncio.Lock()
        self._logged: set[str] = set()

    async def load(self) -> Skills:
        """Return the skills as they are now."""
        contributed = await self._ctx.contributed(skills_sources)
        async with self._loading:
            return await asyncio.to_thread(self._load, contributed)

    def visible(self, skills: Skills, *, is_owner: bool) -> list[LoadedSkill]:
        """Return the skills that the sender of a message gets, by name."""
        usable, guests = skills.usable(), self.settings.guests
        if is_owner or guests == "all":
            return usable
        if guests == "none":
            return []
        # One that the owner's skill shadows is left out too: a guest must not get other rules.
        return [each for each in usable if not each.found.place.is_private]

    def report(self, skills: Skills) -> None:
        """Log what the owner should know, each once."""
        for problem in (*skills.problems, *map(str, skills.broken)):
            self.log_once("WARNING", problem)
        for each in skills.loaded:
            if each.shadowed_by:
                self.log_once("INFO", f"{each.found.shown} is replaced by {each.shadowed_by}")
            elif each.awaits_approval:
                self.log_once("WARNING", f"'{each.name}' awaits approval: /skills show {each.name}")

    def log_once(self, level: str, message: str) -> None:
        """Log a message unless it has been logged before."""
        if message not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(message)
            self._ctx.logger.log(level, "skills: {}", message)

    async def approve(self, each: LoadedSkill) -> None:
        """Record that the owner approves the content of a skill as it was loaded."""
        folder, digest = each.found.folder.as_posix(), each.skill.digest
        await asyncio.to_thread(approve_skill, self._ctx.data_dir, folder, digest)

    def _load(self, contributed: Sequence[Contributed[SkillSource]]) -> Skills:
        places, problems = self._places(contributed)
        found: list[Found] = []
        for place in places:
            is_known = place is self._built_in
            in_place, problem = (self._built_in_skills, "") if is_known else find_skills(place)
            found += [each for each in in_place if self._is_enabled(each.name)]
            problems += [problem] if problem else []
        approvals: Mapping[str, str] = {}
        if any(each.place.is_writable for each in found):
            approvals, problem = load_approvals(self._ctx.data_dir)
            problems += [problem] if problem else []
        state = (found, approvals, problems, self._requirements.state())
        if state != self._former[0]:
            self._former = state, self._loaded(found, approvals, problems)
        return self._former[1]

    def _loaded(
        self, found: Sequence[Found], approvals: Mapping[str, str], problems: Sequence[str]
    ) -> Skills:
        # A folder that several sources name belongs to the first.
        by_path = {each.path: each for each in reversed(found)}
        contents = [(each, self._content(each)) for each in found if by_path[each.path] is each]
        self._read = {each.path: (each, content) for each, content in contents}
        good = [(each, skill) for each, skill in contents if isinstance(skill, Skill)]
        broken = [
            BrokenSkill(each, error) for each, error in contents if isinstance(error, SkillInvalid)
        ]
        loaded = self._judge(good, approvals)
        return Skills(tuple(loaded), tuple(broken), tuple(problems))

    def _judge(
        self, good: Sequence[tuple[Found, Skill]], approvals: Mapping[str, str]
    ) -> list[LoadedSkill]:
        """Return skills in their order of precedence, with their state."""
        self._requirements.look_for({name for _, skill in good for name in skill.requires.bins})
        first: dict[str, str] = {}
        loaded: list[LoadedSkill] = []
        for found, skill in good:
            approved = approvals.get(found.folder.as_posix()) == skill.digest
            loaded.append(
                LoadedSkill(
                    found=found,
                    skill=skill,
                    missing=self._requirements.missing(skill.requires),
                    is_approved=approved or not found.place.is_writable,
                    shadowed_by=first.get(skill.name, ""),
                )
            )
            first.setdefault(skill.name, found.place.label)
        return loaded

    def _content(self, found: Found) -> Skill | SkillInvalid:
        known = self._read.get(found.path)
        if known is not None and known[0].version == found.version:
            return known[1]
        content: Skill | SkillInvalid
        try:
            content = found.read()
        except SkillInvalid as error:
            content = error
        # Noted at once: if the turn does not wait for the rest, the next one continues from here.
        self._read[found.path] = found, content
        return content

    def _is_enabled(self, name: str) -> bool:
        settings = self.settings
        return _matches(name, settings.enabled) and not _matches(name, settings.disabled)

    def _places(
        self, contributed: Sequence[Contributed[SkillSource]]
    ) -> tuple[list[Place], list[str]]:
        """Return the folders in their order of precedence, and what is wrong with them."""
        places = [
            Place(self._workspace, PurePath(name), f"workspace {name}", True, True)
            for name in WORKSPACE_FOLDERS
        ]
        problems: list[str] = []
        places += [
            self._place(folder, str(folder), is_private=True) for folder in self.settings.folders
        ]
        for each in contributed:
            source: object = each.value
            if isinstance(source, SkillSource):
                label = f"{source.label} ({each.plugin})"
                places.append(self._place(source.folder, label, is_private=False))
            else:
                kind = type(source).__name__
                problems.append(f"plugin '{each.plugin}' contributes {kind}, expected SkillSource")
        places.append(self._built_in)
        return places, problems

    def _place(self, folder: Path, label: str, *, is_private: bool) -> Place:
        """Return a folder; inside the workspace it is opened like anything there."""
        path = Path(os.path.normpath(self._ctx.workspace / folder.expanduser()))
        for base in (self._ctx.workspace, self._workspace.path):
            if path.is_relative_to(base):
                return Place(self._workspace, path.relative_to(base), label, True, is_private)
        door = Folder(path)
        if door.path.is_relative_to(self._workspace.path):
            base = door.path.relative_to(self._workspace.path)
            return Place(self._workspace, base, label, True, is_private)
        return Place(door, PurePath(), label, is_private=is_private)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
