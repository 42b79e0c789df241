from __future__ import annotations

import re

from hypothesis import given, strategies as st

from nanobot_mcp.hub import Claim, assign_names

LEGAL = re.compile(r"mcp_[a-zA-Z0-9_-]{0,60}")
texts = st.text(max_size=80) | st.sampled_from(
    ["a", "a_b", "b_c", "c", "resource_x", "x", "a b", "a.b"]
)
claims = st.lists(
    st.tuples(
        texts,
        st.sampled_from(["tool", "resource", "template", "prompt", "connect"]),
        texts,
        st.just(""),
    ),
    max_size=20,
    unique=True,
)


@given(claims)
def test_names_are_legal_and_unique_and_do_not_depend_on_the_order(found: list[Claim]) -> None:
    names = assign_names(found)

    assert set(names) == set(found)
    assert len(set(names.values())) == len(found)
    assert all(LEGAL.fullmatch(name) for name in names.values())
    assert assign_names(reversed(found)) == names


def test_usual_names_read_as_they_were_written() -> None:
    time, note, greet = names = (
        ("time", "tool", "get_current_time", ""),
        ("notes", "resource", "read me.md", "file:///a"),
        ("notes", "prompt", "greet", ""),
    )

    assert assign_names(names) == {
        time: "mcp_time_get_current_time",
        note: "mcp_notes_resource_read_me_md",
        greet: "mcp_notes_prompt_greet",
    }


def test_names_that_meet_get_digests_all_of_them() -> None:
    first, second = ("a", "tool", "b_c", ""), ("a_b", "tool", "c", "")

    names = assign_names([first, second])

    assert names[first] != names[second]
    assert all(name.startswith("mcp_a_b_c_") for name in names.values())


def test_a_server_cannot_take_the_name_of_another_with_a_digest() -> None:
    contested = [("a", "tool", "b_c", ""), ("a_b", "tool", "c", "")]
    taken = assign_names(contested)[contested[0]]
    crafted = ("a", "tool", taken.removeprefix("mcp_a_"), "")

    names = assign_names([*contested, crafted])

    assert len(set(names.values())) == 3


def test_no_name_hides_a_tool_of_another_plugin() -> None:
    (name,) = assign_names([("", "tool", "exec", "")]).values()

    assert name == "mcp__exec"
