"""A skill as its SKILL.md describes it, and the rules of the format."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from nanobot_core import JsonObject, JsonValue
from nanobot_skills.front_matter import (
    Finding,
    FrontMatter,
    SkillInvalid,
    parse_front_matter,
    visible_text,
)

FILE_NAME = "SKILL.md"
MAX_BYTES = 256_000
"""Size of a SKILL.md; the format recommends less than a tenth of it."""
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
MAX_REQUIRED = 20
"""Programs, variables or tools that a skill can require; each is looked for."""
ADVISED_LINES = 500
ADVISED_CHARS = 20_000
"""About 5,000 tokens, which the format recommends as the most for a body."""
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_USABLE_NAME = re.compile(r"\w[\w.-]{0,63}")
"""What a folder may be called for its skill to be loaded all the same."""
_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_OLDER = ("nanobot", "openclaw", "clawdbot")
"""Keys of `metadata` below which older skills keep a map of their own."""
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a skill needs in order to work.

    Attributes:
        bins: programs.
        env: environment variables.
        tools: tools that the model must be offered.
    """

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """The content of a SKILL.md.

    Attributes:
        name: name of its folder.
        description: one line, at most `MAX_DESCRIPTION_CHARS`.
        body: the instructions, without the front matter.
        always: the body belongs in every prompt.
        requires: what it needs.
        digest: SHA-256 of the file, in hexadecimal.
        findings: departures from the format.
    """

    name: str
    description: str
    body: str
    always: bool
    requires: Requirements
    digest: str
    findings: tuple[Finding, ...]


def parse_skill(name: str, data: bytes) -> Skill:
    """Return the skill in the folder `name` whose SKILL.md contains `data`.

    Raises:
        SkillInvalid: it cannot be loaded.
    """
    if not _USABLE_NAME.fullmatch(name):
        raise SkillInvalid("rename its folder: use lower-case letters, digits and hyphens")
    if len(data) > MAX_BYTES:
        raise SkillInvalid(f"it is larger than {MAX_BYTES:,} bytes; move parts to further files")
    if b"\0" in data:
        raise SkillInvalid("it contains NUL bytes, so it is not a text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillInvalid("save it as UTF-8", line) from error
    front = parse_front_matter(text)
    values, findings = front.values, list(front.findings)
    description = " ".join(_text(values.get("description")).split())
    if not description:
        line = front.lines.get("description", 1)
        raise SkillInvalid("add a description: what the skill does and when to use it", line)
    findings += _judge(name, description, front)
    metadata, older = _metadata(values, front, findings)
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION_CHARS],
        body=front.body,
        always=_is_always(values, metadata, older[0]),
        requires=_requirements(values, metadata, older, findings),
        digest=hashlib.sha256(data).hexdigest(),
        findings=tuple(sorted(findings, key=lambda finding: finding.line)),
    )


def is_valid_name(name: str) -> bool:
    """Whether the format allows a name."""
    return len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name) is not None


def _judge(name: str, description: str, front: FrontMatter) -> list[Finding]:
    """Return the findings on the keys of the format and on the length of the body."""
    values = front.values
    findings: list[Finding] = []

    def note(key: str, message: str) -> None:
        findings.append(Finding(front.lines.get(key, 1), message))

    given = _text(values.get("name"))
    if given != name:
        note("name", f"set 'name' to the name of the folder, '{name}'")
    if not is_valid_name(name):
        note("name", "use at most 64 lower-case letters, digits and single hyphens as name")
    if len(description) > MAX_DESCRIPTION_CHARS:
        note("description", f"shorten the description to {MAX_DESCRIPTION_CHARS:,} characters")
    if "<" in description or ">" in description:
        note("description", "remove < and > from the description")
    for key in ("description", "license", "compatibility", "allowed-tools"):
        if key in values and not (isinstance(values[key], str) and values[key]):
            note(key, f"'{key}' must be a text")
    if len(_text(values.get("compatibility"))) > MAX_COMPATIBILITY_CHARS:
        note("compatibility", f"shorten 'compatibility' to {MAX_COMPATIBILITY_CHARS} characters")
    for key in values:
        if key not in _KEYS:
            note(key, f"'{key:.60}' is not a key of the format; put it below 'metadata'")
    first = front.lines.get("description", 1)
    if not front.body:
        findings.append(Finding(first, "add instructions below the front matter"))
    if front.body.count("\n") >= ADVISED_LINES or len(front.body) > ADVISED_CHARS:
        message = f"move parts to further files: more than {ADVISED_LINES} lines or 5,000 tokens"
        findings.append(Finding(first, message, is_error=False))
    return findings


def _metadata(
    values: JsonObject, front: FrontMatter, findings: list[Finding]
) -> tuple[JsonObject, list[JsonObject]]:
    """Return the map below ``metadata``, and those that older skills keep in it, ours first."""
    line = front.lines.get("metadata", 1)
    metadata = values.get("metadata")
    if isinstance(metadata, str) and metadata:
        findings.append(Finding(line, "write 'metadata' as indented lines of 'key: \"text\"'"))
        metadata = _parse_json(metadata)
    if metadata and not isinstance(metadata, dict):
        findings.append(Finding(line, "write 'metadata' as indented lines of 'key: \"text\"'"))
    if not isinstance(metadata, dict):
        return {}, [{}]
    older: list[JsonObject] = []
    for key in _OLDER:
        found = metadata.get(key)
        if isinstance(found, str):
            found = _parse_json(found)
        older.append(found if isinstance(found, dict) else {})
    for key, value in metadata.items():
        if not isinstance(value, str):
            message = f"'{key:.60}' below 'metadata' must be a text, see nanobot-requires-bins"
            findings.append(Finding(line, message))
    return metadata, older


def _is_always(values: JsonObject, metadata: JsonObject, ours: JsonObject) -> bool:
    given = (values.get("always"), ours.get("always"), metadata.get("nanobot-always"))
    return any(_text(value).lower() == "true" for value in given)


def _requirements(
    values: JsonObject, metadata: JsonObject, older: list[JsonObject], findings: list[Finding]
) -> Requirements:
    sources = [source.get("requires") for source in (values, *older)]
    maps = [source for source in sources if isinstance(source, dict)]

    def words(kind: str) -> tuple[str, ...]:
        given = [metadata.get(f"nanobot-requires-{kind}"), *(source.get(kind) for source in maps)]
        found = tuple(dict.fromkeys(word for value in given for word in _words(value)))
        if len(found) > MAX_REQUIRED:
            raise SkillInvalid(f"require at most {MAX_REQUIRED} {kind}")
        for word in found:
            if not _PLAIN_WORD.fullmatch(word):
                message = f"'{word:.60}' in the required {kind} must be a plain name"
                findings.append(Finding(1, message))
        return found

    return Requirements(words("bins"), words("env"), words("tools"))


def _words(value: JsonValue) -> list[str]:
    """Return the words of a text, or of a list of texts."""
    texts = value if isinstance(value, list) else [value]
    return [word for text in texts for word in _text(text).replace(",", " ").split()]


def _text(value: JsonValue) -> str:
    return visible_text(value).strip() if isinstance(value, str) else ""


def _parse_json(text: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(text, object_pairs_hook=_with_visible_keys)
    except (ValueError, RecursionError):
        return None
    return found


def _with_visible_keys(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    return {visible_text(key): value for key, value in pairs}
