"""Profiles: kinds of subagents as files ``agents/NAME.md``, in the form that Claude Code uses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, TypeAlias

from nanobot_core import Folder, NanobotError, PluginContext, ToolInputError, ToolRule, shorten

FOLDER = "agents"
MAX_BYTES = 40_000
MAX_PROFILES = 50
MAX_DESCRIPTION_CHARS = 300
"""Characters of a description that the model sees in each request."""
_File: TypeAlias = tuple[str, os.stat_result]
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_WITH_COLON = re.compile(r"^([A-Za-z][\w-]*):[ \t]+([^\s'\"].*:( .*)?)$")
"""A line whose value has a colon, which people write without quotes."""
_MAX_LEVELS = 10
_KEYS = frozenset(
    {"name", "description", "tools", "disallowedTools", "model", "maxTurns", "skills"}
)
_INHERIT = (None, "", "inherit")
_ALIASES = frozenset({"sonnet", "opus", "haiku"})
_TOOLS = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "NotebookEdit": "notebook_edit",
    "LS": "list_dir",
    "Glob": "glob",
    "Grep": "grep",
    "Bash": "exec",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Task": "delegate",
    "Agent": "delegate",
}
"""Name of a tool there to the name of ours."""


class ProfileInvalid(NanobotError):
    """A profile cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of subagent. It can only reduce the tools and model calls of a run.

    Attributes:
        name: what the model chooses it by.
        description: when to use it.
        prompt: instructions.
        allow: patterns of the tools that it may use, or ``None`` for those of any run.
        deny: patterns of the tools that it may not use.
        model: model or preset, or ``None``.
        max_turns: model calls, or ``None``.
        skills: names of skills to read first.
        notes: parts of the file that are not used, as sentences.
    """

    name: str
    description: str
    prompt: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    model: str | None = None
    max_turns: int | None = None
    skills: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> ToolRule:
        """The tools that a run with this profile may use."""
        return ToolRule(("*",) if self.allow is None else self.allow, self.deny)

    @property
    def instructions(self) -> str:
        """The prompt, and which skills to read."""
        if not self.skills:
            return self.prompt
        return f"{self.prompt}\n\nBefore you begin, read these skills: {', '.join(self.skills)}."


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the folder.

    Attributes:
        usable: by name, in order of their names.
        problems: broken files, as sentences.
    """

    usable: dict[str, Profile]
    problems: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the owner: broken files, and unused parts of others."""
        own = (f"{FOLDER}/{p.name}.md: {note}" for p in self.usable.values() for note in p.notes)
        return (*self.problems, *own)

    def get(self, name: str) -> Profile:
        """Return the profile of a name.

        Raises:
            ToolInputError: the name is unknown.
        """
        if name in self.usable:
            return self.usable[name]
        near = get_close_matches(name, self.usable, n=3)
        known = near or sorted(self.usable)[:10]
        hint = f"did you mean {' or '.join(known)}?" if near else f"known: {', '.join(known)}"
        if not known:
            hint = f"there are no profiles; leave out 'agent', or add {FOLDER}/NAME.md"
        raise ToolInputError(f"no profile is named '{shorten(name, 60)}'; {hint}")


class ProfileFolder:
    """Reads the profiles of the workspace; one object per application.

    A file is read again only when its size or time has changed. Links are not followed.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._workspace = Folder(ctx.workspace)
        self._read: dict[str, tuple[object, Profile | ProfileInvalid]] = {}
        self._former: tuple[object, Profiles] = (None, Profiles({}))
        self._reading = asyncio.Lock()
        self._logged: set[str] = set()

    async def load(self) -> Profiles:
        """Return the current profiles, and log each of their problems once."""
        async with self._reading:
            profiles = await asyncio.to_thread(self._load)
        for note in profiles.notes:
            if note not in self._logged and len(self._logged) < 1_000:
                self._logged.add(note)
                self._log.warning("subagents: {}", note)
        return profiles

    def _load(self) -> Profiles:
        try:
            entries = self._workspace.scan(FOLDER)
        except FileNotFoundError:
            return Profiles({})
        except OSError as error:
            return Profiles({}, (f"{FOLDER}: cannot be read: {error.strerror}",))
        files = sorted((each for each in entries if each.name.endswith(".md")), key=lambda f: f[0])
        state = [(name, _version(facts)) for name, facts in files]
        if state != self._former[0]:
            self._former = state, self._profiles(files)
        return self._former[1]

    def _profiles(self, files: Sequence[_File]) -> Profiles:
        usable: dict[str, Profile] = {}
        problems = []
        if len(files) > MAX_PROFILES:
            problems.append(f"{FOLDER}: only the first {MAX_PROFILES} of {len(files)} are used")
        former, self._read = self._read, {}
        for name, facts in files[:MAX_PROFILES]:
            known, version = former.get(name), _version(facts)
            found = known[1] if known and known[0] == version else self._parse(name, facts)
            self._read[name] = version, found
            if isinstance(found, Profile):
                usable[found.name] = found
            else:
                problems.append(f"{FOLDER}/{name}: {found}")
        return Profiles(usable, tuple(problems))

    def _parse(self, name: str, facts: os.stat_result) -> Profile | ProfileInvalid:
        try:
            if not stat.S_ISREG(facts.st_mode):
                raise ProfileInvalid("it is not a regular file")
            data = self._workspace.read(PurePath(FOLDER, name), MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise ProfileInvalid(f"it has more than {MAX_BYTES:,} bytes")
            return parse_profile(name.removesuffix(".md"), data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return ProfileInvalid("it is not text in UTF-8")
        except OSError as error:
            return ProfileInvalid(f"it cannot be read: {error.strerror}")
        except ProfileInvalid as error:
            return error


def parse_profile(name: str, text: str) -> Profile:
    """Return the profile in a file.

    Args:
        name: of the file, without ``.md``.
        text: the whole file.

    Raises:
        ProfileInvalid: it cannot be used.
    """
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in map(str.rstrip, lines[1:]):
        raise ProfileInvalid("it needs front matter between two lines '---'")
    end = [line.rstrip() for line in lines].index("---", 1)
    facts = _front_matter(lines[1:end])
    prompt = "\n".join(lines[end + 1 :]).strip()
    description = facts.get("description")
    if facts.get("name", name) != name:
        raise ProfileInvalid(f"its 'name' is not '{name}', like that of the file")
    if not _NAME.fullmatch(name):
        raise ProfileInvalid("its name needs lower-case letters, digits and hyphens")
    if not isinstance(description, str) or not description.strip():
        raise ProfileInvalid("it needs a 'description' that says when to use it")
    if not prompt:
        raise ProfileInvalid("it has no instructions below the front matter")
    notes = [f"{shorten(key, 60)!r} is not used" for key in sorted(facts) if key not in _KEYS]
    allow = _tools(facts["tools"], notes) if facts.get("tools") is not None else None
    return Profile(
        name=name,
        description="".join(filter(str.isprintable, " ".join(description.split()))),
        prompt=prompt,
        allow=allow,
        deny=_denied(facts.get("disallowedTools")),
        model=_model(facts.get("model"), notes),
        max_turns=_turns(facts.get("maxTurns")),
        skills=tuple(_names("skills", facts.get("skills"))),
        notes=tuple(notes),
    )


def _front_matter(lines: Sequence[str]) -> dict[str, Any]:
    """Return the keys; a value with a colon, which YAML refuses, is read as text."""
    import yaml

    try:
        facts = _loaded("\n".join(lines))
    except (yaml.YAMLError, ValueError, RecursionError):
        quoted = [
            f"{match[1]}: {json.dumps(match[2])}" if (match := _WITH_COLON.match(line)) else line
            for line in lines
        ]
        try:
            facts = _loaded("\n".join(quoted))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise ProfileInvalid(f"its front matter is not valid YAML: {reason}") from error
    if not isinstance(facts, dict) or not all(isinstance(key, str) for key in facts):
        raise ProfileInvalid("its front matter needs lines 'key: value'")
    return facts


def _loaded(text: str) -> object:
    """Return the content of YAML that a short text cannot make large: no aliases, few levels."""
    import yaml

    level = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if getattr(event, "anchor", None) is not None:
            raise ProfileInvalid(
                "its front matter has an anchor or alias (& or *); write the value"
            )
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > _MAX_LEVELS:
            raise ProfileInvalid("its front matter is nested too deeply")
    return yaml.safe_load(text)


def _names(key: str, value: object) -> list[str]:
    """Return a list of names, which may be one text with commas."""
    items = value.split(",") if isinstance(value, str) else [] if value is None else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ProfileInvalid(f"'{key}' needs a list of names")
    return [item.strip() for item in items if item.strip()]


def _tools(value: object, notes: list[str]) -> tuple[str, ...]:
    """Return the patterns of allowed tools; one with conditions is left out, since none applies."""
    found = []
    for name in _names("tools", value):
        if "(" in name:
            notes.append(f"'{shorten(name, 60)}' in 'tools' is left out: conditions do not apply")
        else:
            found.append(_our_name(name))
    return tuple(dict.fromkeys(found))


def _denied(value: object) -> tuple[str, ...]:
    """Return the patterns of denied tools; one with conditions is denied as a whole."""
    names = (name.partition("(")[0] for name in _names("disallowedTools", value))
    return tuple(dict.fromkeys(map(_our_name, names)))


def _our_name(name: str) -> str:
    if name.startswith("mcp__"):
        return name.replace("__", "_")
    return _TOOLS.get(name, name)


def _model(value: object, notes: list[str]) -> str | None:
    if value in _INHERIT:
        return None
    if not isinstance(value, str):
        raise ProfileInvalid("'model' needs the name of a model or preset")
    if value in _ALIASES:
        notes.append(f"'model: {value}' is not used; name a model or a preset")
        return None
    return value


def _turns(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ProfileInvalid("'maxTurns' needs a whole number from 1")
    return value


def _version(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_mode


def render_profiles(profiles: Iterable[Profile]) -> str:
    """Return names and descriptions for the model, by name."""
    lines = (
        f"- {each.name}: {shorten(each.description, MAX_DESCRIPTION_CHARS)}"
        for each in sorted(profiles, key=lambda each: each.name)
    )
    return "\n".join(lines)
