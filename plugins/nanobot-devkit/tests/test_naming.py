from __future__ import annotations

import keyword

import pytest
from hypothesis import given, strategies as st

from nanobot_devkit.naming import MAX_ID_CHARS, NameRefusedError, PluginNames, parse_name


def test_the_names_follow_from_the_id() -> None:
    names = parse_name("nanobot-air-quality")

    assert names == PluginNames("air-quality")
    assert names.distribution == "nanobot-air-quality"
    assert names.package == "nanobot_air_quality"
    assert names.snake == "air_quality"
    assert names.pascal == "AirQuality"
    assert names.title == "Air quality"


@pytest.mark.parametrize(
    "text",
    ["", "-", "Weather", "air_quality", "1st", "a--b", "a-", "-a", "a b", "../x", "ä", "a" * 41],
)
def test_a_malformed_name_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(NameRefusedError, match="lower-case letters, digits and single"):
        parse_name(text)


@pytest.mark.parametrize("text", ["tools", "plugins", "nanobot-core", "class", "lambda"])
def test_a_word_that_means_something_else_is_refused(text: str) -> None:
    with pytest.raises(NameRefusedError, match="choose another"):
        parse_name(text)


def test_the_id_of_an_installed_plugin_is_refused() -> None:
    with pytest.raises(NameRefusedError, match=r"installed already \(nanobot-devkit\)"):
        parse_name("devkit")


@given(st.text(max_size=MAX_ID_CHARS + 5))
def test_every_accepted_name_makes_identifiers(text: str) -> None:
    try:
        names = parse_name(text)
    except NameRefusedError:
        return
    assert names.package.isidentifier()
    assert names.pascal.isidentifier()
    assert names.snake.isidentifier()
    assert not keyword.iskeyword(names.snake)
