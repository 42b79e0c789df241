"""The YAML at the beginning of a SKILL.md, read with tolerance and judged with none.

Whatever can be understood is returned, together with a finding for each departure from the format.
A loader uses the values, a checker the findings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from nanobot_core import JsonObject, JsonValue, NanobotError, shorten

MAX_FRONT_CHARS = 8_000
MAX_LEVELS = 10
"""Levels of lists and maps."""
_TOP_LEVEL = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(\S.*)$")
_INDICATORS = "@`%*&!"
"""A plain value must not begin with these; people write such descriptions all the same."""
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Control characters, and those with which a text shows people less than it shows a model."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A departure from the format.

    Attributes:
        line: number of the line, from 1.
        message: what is wrong and what to do.
        is_error: False for a recommendation of the format.
    """

    line: int
    message: str
    is_error: bool = True


class SkillInvalid(NanobotError):
    """A skill cannot be loaded.

    Args:
        reason: what is wrong and what to do.
        line: number of the line, from 1.
    """

    def __init__(self, reason: str, line: int = 1) -> None:
        self.reason = reason
        self.line = line
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A SKILL.md in parts.

    Attributes:
        values: keys to texts, lists and maps of these; nothing is converted.
        lines: top-level key to the number of its line.
        body: the text after the front matter.
        findings: departures from the format, in the order of lines.
    """

    values: JsonObject
    lines: dict[str, int]
    body: str
    findings: tuple[Finding, ...]


def parse_front_matter(text: str) -> FrontMatter:
    """Divide a SKILL.md.

    Raises:
        SkillInvalid: the front matter is missing or cannot be understood.
    """
    findings: list[Finding] = []
    if text.startswith("\ufeff"):
        findings.append(Finding(1, "remove the byte order mark at the beginning"))
        text = text[1:]
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if _UNSEEN.search(line):
            findings.append(Finding(number, "remove the control characters; they are ignored"))
            lines[number - 1] = visible_text(line)
    end = _end(lines)
    front = lines[1:end]
    if sum(map(len, front)) > MAX_FRONT_CHARS:
        raise SkillInvalid(f"the front matter is longer than {MAX_FRONT_CHARS:,} characters")
    node = _understand(front, findings)
    values = _mapping(node, findings)
    found = {visible_text(key.value): key.start_mark.line + 2 for key, _ in node.value}
    ordered = tuple(sorted(findings, key=lambda finding: finding.line))
    return FrontMatter(values, found, "\n".join(lines[end + 1 :]).strip("\n"), ordered)


def _understand(front: list[str], findings: list[Finding]) -> yaml.MappingNode:
    """Return the front matter; values that YAML refuses are put in quotes and reported."""
    try:
        return _compose("\n".join(front))
    except SkillInvalid:
        quoted = [_quoted(line) for line in front]
        if quoted == front:
            raise
    findings += [
        Finding(number, "put the value in quotes, because YAML gives its characters a meaning")
        for number, (old, new) in enumerate(zip(front, quoted, strict=True), 2)
        if old != new
    ]
    return _compose("\n".join(quoted))


def visible_text(text: str) -> str:
    """Return `text` without control characters and those that hide text from people."""
    # Escapes in YAML, and names of files, may contain halves of characters.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSEEN.sub("", whole)


def _end(lines: list[str]) -> int:
    """Return the index of the line that ends the front matter."""
    if lines[0].rstrip() != "---":
        raise SkillInvalid(
            "begin the file with a line '---', then name and description, then a line '---'"
        )
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return number
    raise SkillInvalid("end the front matter with a line '---'")


class _Loader(yaml.SafeLoader):
    """A loader without aliases, which can make a small text large or cyclic, and with a depth."""

    _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse anchors, aliases and deep nesting."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types for it
        if getattr(event, "anchor", None) is not None:
            raise SkillInvalid(
                "write the value itself instead of an anchor or alias (& or *)",
                event.start_mark.line + 2,
            )
        self._level += 1
        if self._level > MAX_LEVELS:
            raise SkillInvalid("nest values less deeply", event.start_mark.line + 2)
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


def _compose(text: str) -> yaml.MappingNode:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 2
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise SkillInvalid(f"invalid YAML: {shorten(problem, 200)}", line) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SkillInvalid(f"invalid YAML: {type(error).__name__}", 2) from error
    if not isinstance(node, yaml.MappingNode):
        raise SkillInvalid("write the front matter as lines of 'key: value'", 2)
    return node


def _quoted(line: str) -> str:
    """Return a top-level line with its value in quotes if YAML misunderstands it."""
    match = _TOP_LEVEL.match(line)
    if match is None:
        return line
    key, value = match[1], match[2].rstrip()
    if value[0] in "\"'|>" or not (": " in value or value.endswith(":") or value[0] in _INDICATORS):
        return line
    return f"{key}: '{value.replace(chr(39), chr(39) * 2)}'"


def _mapping(node: yaml.MappingNode, findings: list[Finding]) -> JsonObject:
    _note_flow_style(node, findings)
    result: JsonObject = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 2
        if not isinstance(key_node, yaml.ScalarNode):
            raise SkillInvalid("a key must be a text", line)
        key = visible_text(key_node.value)
        if key in result:
            message = f"'{shorten(key, 60)}' is repeated; the last one counts"
            findings.append(Finding(line, message))
        result[key] = _value(value_node, findings)
    return result


def _value(node: yaml.Node, findings: list[Finding]) -> JsonValue:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, findings)
    if isinstance(node, yaml.SequenceNode):
        _note_flow_style(node, findings)
        return [_value(item, findings) for item in node.value]
    if not node.tag.endswith(":str") and node.tag.startswith("tag:yaml.org") and node.value:
        line = node.start_mark.line + 2
        value = shorten(node.value, 60)
        findings.append(Finding(line, f"put '{value}' in quotes; YAML does not read it as a text"))
    return "" if node.tag.endswith(":null") else visible_text(node.value)


def _note_flow_style(node: yaml.CollectionNode, findings: list[Finding]) -> None:
    if node.flow_style:
        line = node.start_mark.line + 2
        findings.append(Finding(line, "write it in indented lines instead of {…} or […]"))
