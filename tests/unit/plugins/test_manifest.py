"""A manifest survives its way through files, and says what the owner should know."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from nanobot_core import PluginFacts
from nanobot_core.plugins.manifest import (
    KINDS,
    Declaration,
    Manifest,
    SettingsDeclaration,
    declared_tool,
    manifest_from_index,
    manifest_to_json,
    parse_manifest,
)

texts = st.text(max_size=20)
tuples = st.lists(texts, max_size=3).map(tuple)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
details = st.dictionaries(texts, values, max_size=3)
manifests = st.builds(
    Manifest,
    id=texts,
    declarations=st.lists(
        st.builds(Declaration, st.sampled_from(list(KINDS)), texts, texts, details), max_size=3
    ).map(tuple),
    hooks=st.dictionaries(texts, st.integers(), max_size=3),
    settings=st.lists(
        st.builds(SettingsDeclaration, texts, texts, details, tuples), max_size=2
    ).map(tuple),
    facts=st.builds(
        PluginFacts,
        summary=texts,
        requires=tuples,
        after=tuples,
        before=tuples,
        capabilities=tuples,
        hosts=tuples,
        tool_names=tuples,
        docs=texts,
    ),
    when=st.dictionaries(texts, texts, max_size=2),
)


@given(manifests)
def test_a_manifest_comes_back_from_its_file_as_it_was(manifest: Manifest) -> None:
    text = json.dumps(manifest_to_json(manifest))

    assert parse_manifest(text) == manifest
    assert manifest_from_index(json.loads(text)) == manifest


def test_conditions_stand_in_the_file_only_where_there_are_some() -> None:
    assert "when" not in manifest_to_json(Manifest(id="x"))


@pytest.mark.parametrize(
    "text", ["", "1", "{}", '{"schema_version": 1}', '{"schema_version": "1"}']
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_manifest(text)


def test_hooks_that_reach_far_are_capabilities() -> None:
    facts = PluginFacts(capabilities=("runs commands",))
    manifest = Manifest(id="x", hooks={"authorize_tool_call": 1, "start": 1}, facts=facts)

    assert manifest.capabilities == ("runs commands", "decides on tool calls and changes them")


def test_a_tool_is_offered_from_its_declaration_however_poor() -> None:
    poor = Declaration("tools", "t", detail={"description": 1, "parameters": 1, "read_only": "yes"})

    found = declared_tool(poor)
    assert found.definition.parameters == {"type": "object"}
    assert found.definition.description == ""
    assert not found.read_only
