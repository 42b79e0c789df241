"""SKILL.md: read or refused; what conforms means the same to any YAML parser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import yaml

from nanobot_skills.front_matter import SkillInvalid
from nanobot_skills.skill import MAX_DESCRIPTION_CHARS, Skill, parse_skill

TOKENS: Final = (
    b"---\n", b"name: demo\n", b"description: ", b"metadata:\n", b"  nanobot-always: ", b'"true"',
    b"requires:\n", b"  bins: [", b"{", b"}", b"&a ", b"*a", b"!!str ", b"<<: ", b"? ", b": ",
    b"|\n  ", b">-\n  ", b"\xef\xbb\xbf", b"\r\n", b"\t", b"# ", b'"\\ud800"', b'"\\u202e"',
    b"%YAML 1.1\n", b"\\UFFFFFFFF", b"...\n", b"nanobot", b"~", b"'",
    b'{"nanobot":{"requires":{"env":"A"}}}',
)  # fmt: skip


def fuzz_one(data: bytes) -> None:
    """Parse a file in the folder ``demo``."""
    with suppress(SkillInvalid):
        _check(data, parse_skill("demo", data))


def _check(data: bytes, skill: Skill) -> None:
    assert 0 < len(skill.description) <= MAX_DESCRIPTION_CHARS
    assert skill.description == " ".join(skill.description.split())
    for text in (skill.description, skill.body, *skill.requires.bins, *skill.requires.env):
        text.encode()
        assert "\x1b" not in text
        assert "\u202e" not in text
    if not any(finding.is_error for finding in skill.findings):
        _check_meaning(data, skill)


def seeds() -> Iterator[bytes]:
    """Yield files in the present form and in older ones."""
    begin, end = b"---\nname: demo\ndescription: Does it.\n", b"---\n\nDo it.\n"
    yield begin + b'metadata:\n  nanobot-always: "true"\n  nanobot-requires-bins: "a b"\n' + end
    yield begin + b'metadata: {"nanobot":{"requires":{"bins":["gh"],"env":["KEY"]}}}\n' + end
    yield begin + b"always: true\nrequires:\n  bins: [a]\n  env: B\n" + end
    yield begin + b'license: MIT\nallowed-tools: exec\ncompatibility: "x: y"\n' + end
    yield b"---\nname: demo\ndescription: Use it: when: asked\n" + end
    yield b"---\r\nname: demo\r\ndescription: >-\r\n  two\r\n  lines\r\n---\r\nbody\r\n"


def _check_meaning(data: bytes, skill: Skill) -> None:
    front = data.decode().replace("\r\n", "\n").partition("---")[2].partition("\n---")[0]
    values = yaml.safe_load(front)
    assert values["name"] == skill.name
    assert " ".join(values["description"].split()) == skill.description
