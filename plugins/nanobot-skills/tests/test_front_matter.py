"""Front matter in the forms in which people write it."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from nanobot_skills.front_matter import SkillInvalid, parse_front_matter
from nanobot_skills.skill import MAX_BYTES, Skill, parse_skill


def skill(front: str, name: str = "demo", body: str = "Do it.") -> Skill:
    return parse_skill(name, f"---\n{front}\n---\n{body}\n".encode())


def errors(found: Skill) -> list[str]:
    return [f"{each.line}: {each.message}" for each in found.findings if each.is_error]


GOOD = "name: demo\ndescription: Does it."


def test_a_skill_that_conforms_has_no_findings() -> None:
    found = skill(
        f"{GOOD}\nlicense: MIT\ncompatibility: Needs git\nallowed-tools: exec read_file\n"
        'metadata:\n  author: us\n  nanobot-always: "true"\n'
        '  nanobot-requires-bins: "curl git"\n  nanobot-requires-env: "A B"\n'
        '  nanobot-requires-tools: "exec"'
    )

    assert errors(found) == []
    assert (found.description, found.body, found.always) == ("Does it.", "Do it.", True)
    assert found.requires.bins == ("curl", "git")
    assert found.requires.env == ("A", "B")
    assert found.requires.tools == ("exec",)


@pytest.mark.parametrize(
    ("front", "bins", "env", "always"),
    [
        ('metadata: {"nanobot":{"emoji":"x","requires":{"bins":["gh"]}}}', ["gh"], [], False),
        ('metadata: \'{"nanobot":{"requires":{"bins":["gh"]}}}\'', ["gh"], [], False),
        ("metadata:\n  nanobot:\n    always: true", [], [], True),
        ("metadata:\n  openclaw:\n    requires:\n      env:\n        - KEY", [], ["KEY"], False),
        # Elsewhere `always` means that a skill is not filtered.
        ("metadata:\n  openclaw:\n    always: true", [], [], False),
        ("always: true\nrequires:\n  bins: [a, b]\n  env: KEY", ["a", "b"], ["KEY"], True),
        ("always: yes", [], [], False),
        ("requires: nonsense", [], [], False),
    ],
)
def test_older_forms_are_read_and_reported(
    front: str, bins: list[str], env: list[str], always: bool
) -> None:
    found = skill(f"{GOOD}\n{front}")

    assert list(found.requires.bins) == bins
    assert list(found.requires.env) == env
    assert found.always is always
    assert errors(found) != []


@pytest.mark.parametrize(
    ("front", "description", "finding"),
    [
        ("name: demo\ndescription: Use it: now", "Use it: now", "3: put the value in quotes"),
        ("name: demo\ndescription: it's: 'so'", "it's: 'so'", "3: put the value in quotes"),
        ("name: demo\ndescription: @home", "@home", "3: put the value in quotes"),
        ("name: demo\ndescription: >-\n  Two\n  lines", "Two lines", ""),
        ("name: other\ndescription: x", "x", "2: set 'name' to the name of the folder, 'demo'"),
        ("description: x", "x", "1: set 'name'"),
        ("name: demo\nname: demo\ndescription: x", "x", "3: 'name' is repeated"),
        ("name: demo\ndescription: 2026", "2026", "3: put '2026' in quotes"),
        ("name: demo\ndescription: a <b> c", "a <b> c", "3: remove < and >"),
        ("name: demo\ndescription: x\nhomepage: y", "x", "4: 'homepage' is not a key"),
        ("name: demo\ndescription: x\nlicense: [MIT]", "x", "4: 'license' must be a text"),
        ("name: demo\ndescription: x\nmetadata: {a: b}", "x", "4: write it in indented lines"),
        ("name: demo\ndescription: x\nmetadata:\n  a:\n    b: c", "x", "'a' below 'metadata'"),
        (f"name: demo\ndescription: x\ncompatibility: {'y' * 501}", "x", "4: shorten 'compat"),
        ("name: demo\ndescription: a\u202eb", "ab", "3: remove the control characters"),
        ('name: demo\ndescription: "a\\e\\u202eb"', "ab", ""),
        ("name: demo\ndescription: &x a", "&x a", "3: put the value in quotes"),
    ],
)
def test_departures_are_understood_and_reported(front: str, description: str, finding: str) -> None:
    found = skill(front)

    assert found.description == description
    assert finding in "\n".join(errors(found))
    assert bool(finding) is bool(errors(found))


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"", 1, "begin the file with a line '---'"),
        (b"# No front matter", 1, "begin the file with a line '---'"),
        (b"---\nname: demo\n", 1, "end the front matter with a line '---'"),
        (b"---\nname: demo\n---\n", 1, "add a description"),
        (b"---\nname: demo\ndescription: ' '\n---\n", 3, "add a description"),
        (b"---\nname: demo\ndescription:\n  - x\n---\n", 3, "add a description"),
        (b"---\n- a\n---\n", 2, "write the front matter as lines of 'key: value'"),
        (b"---\n---\n", 2, "write the front matter as lines of 'key: value'"),
        (b"---\na: 'b\n---\n", 2, "invalid YAML"),
        (b"---\nname: demo\nmetadata:\n  a: &x [b]\n---\n", 4, "instead of an anchor"),
        (b'---\nname: "\\UFFFFFFFF"\n---\n', 2, "invalid YAML"),
        (b"---\n? [a]\n: b\n---\n", 2, "a key must be a text"),
        (b"---\na: " + b"[" * 7_000 + b"\n---\n", 2, "nest values less deeply"),
        (b"---\ndescription: " + b"x" * 20_000 + b"\n---\n", 1, "longer than 8,000"),
        (b"---\nname: demo\n\xff\n---\n", 3, "save it as UTF-8"),
        (b"---\nname: demo\ndescription: x\n---\n\0", 1, "NUL"),
        (b"x" * (MAX_BYTES + 1), 1, "larger than 256,000 bytes"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_line_and_remedy(
    data: bytes, line: int, reason: str
) -> None:
    with pytest.raises(SkillInvalid, match=reason.replace("[", r"\[")) as caught:
        parse_skill("demo", data)
    assert caught.value.line == line


def test_a_byte_order_mark_and_other_line_ends_are_accepted_and_the_mark_reported() -> None:
    found = parse_skill("demo", f"\ufeff---\r\n{GOOD}\r\n--- \r\nDo it.\r\n".encode())

    assert (found.description, found.body) == ("Does it.", "Do it.")
    assert errors(found) == ["1: remove the byte order mark at the beginning"]


def test_only_a_whole_line_ends_the_front_matter() -> None:
    assert skill("name: demo\ndescription: 'a --- b'").description == "a --- b"


def test_a_long_description_is_cut_and_reported() -> None:
    found = skill(f"name: demo\ndescription: {'x' * 1_025}")

    assert len(found.description) == 1_024
    assert errors(found) == ["3: shorten the description to 1,024 characters"]


def test_a_long_body_is_a_recommendation_and_not_an_error() -> None:
    found = skill(GOOD, body="line\n" * 501)

    assert errors(found) == []
    assert [each.is_error for each in found.findings] == [False]


@pytest.mark.parametrize("name", ["Demo", "demo--two", "demo_two", "x" * 64])
def test_a_name_beyond_the_format_is_loaded_and_reported(name: str) -> None:
    found = skill(f"name: {name}\ndescription: x", name)

    assert found.name == name
    assert bool(errors(found)) is (name != "x" * 64)


@pytest.mark.parametrize(
    "name", ["", "..", "-demo", "a b", "a\nb", "x" * 65, "a/b", "\udcff", "\x1b[1m"]
)
def test_a_name_that_could_mislead_is_refused(name: str) -> None:
    with pytest.raises(SkillInvalid, match="rename its folder"):
        skill(GOOD, name)


def test_escapes_in_older_metadata_cannot_bring_back_what_is_removed() -> None:
    front = r"""metadata: '{"\ud800":1,"nanobot":{"requires":{"bins":["a\ud800\u001bb"]}}}'"""
    found = skill(f"{GOOD}\n{front}")

    "".join([*found.requires.bins, *errors(found)]).encode()
    assert "\x1b" not in found.requires.bins[0]


@pytest.mark.parametrize("kind", ["bins", "env", "tools"])
def test_a_skill_cannot_require_any_number_of_things(kind: str) -> None:
    names = " ".join(f"p{number}" for number in range(21))

    with pytest.raises(SkillInvalid, match=f"require at most 20 {kind}"):
        skill(f'{GOOD}\nmetadata:\n  nanobot-requires-{kind}: "{names}"')


def test_a_program_is_named_without_a_path() -> None:
    found = skill(f'{GOOD}\nmetadata:\n  nanobot-requires-bins: "../../bin/sh"')

    assert "must be a plain name" in "\n".join(errors(found))


_YAML = st.recursive(
    st.text(max_size=20) | st.booleans() | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(SkillInvalid):
        assert parse_skill("demo", data).name == "demo"


@given(st.text(alphabet=st.sampled_from("ab:-#{}[]&*!|>'\"%@` \n\t,?"), max_size=120))
def test_any_text_as_front_matter_is_read_or_refused(front: str) -> None:
    with suppress(SkillInvalid):
        found = parse_front_matter(f"---\n{front}\n---\nbody")
        assert all(each.line >= 1 for each in found.findings)


@given(_YAML)
def test_any_metadata_is_read(metadata: object) -> None:
    # JSON is YAML, save for characters that YAML does not print.
    found = skill(f"{GOOD}\nmetadata: {json.dumps(metadata)}")

    assert found.description == "Does it."


@given(st.text(min_size=1, max_size=200).filter(str.isprintable))
def test_a_quoted_description_is_kept(text: str) -> None:
    if not text.split():
        return
    found = skill(f"name: demo\ndescription: {json.dumps(text)}")

    assert found.description == " ".join(text.split())
