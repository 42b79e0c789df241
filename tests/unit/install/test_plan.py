"""Names that resemble others, sources, and what is shown of addresses."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core.errors import InstallError
from nanobot_core.install.installer import mask
from nanobot_core.install.plan import is_one_letter_away, needed_by, refuse_lookalike
from nanobot_core.install.source import parse_source
from nanobot_core.plugins.published import Published
from tests.distributions import write_distribution

WORD = st.text("abc-", min_size=2, max_size=8)


@pytest.mark.parametrize(
    "name",
    [
        "nanobot-telegran",
        "nanobot-telegra",
        "nanobot-telegramm",
        "nanobot-telegarm",
        "nanobottelegram",
        "nanabot-telegram",
    ],
)
def test_a_name_that_resembles_a_known_one_is_refused(name: str) -> None:
    with pytest.raises(InstallError, match="did you mean 'nanobot-telegram'"):
        refuse_lookalike(name, ["nanobot-slack", "nanobot-telegram"])


@pytest.mark.parametrize("name", ["nanobot-telegram", "nanobot-weather", "acme"])
def test_other_names_pass(name: str) -> None:
    refuse_lookalike(name, ["nanobot-telegram", "nanobot-slack"])


@given(one=WORD, other=WORD)
def test_resemblance_is_mutual(one: str, other: str) -> None:
    assert is_one_letter_away(one, other) == is_one_letter_away(other, one)


@given(
    word=st.text("abc", min_size=2, max_size=8),
    place=st.integers(0, 7),
    letter=st.sampled_from("xyz"),
)
def test_one_letter_more_or_another_one_resembles(word: str, place: int, letter: str) -> None:
    place = min(place, len(word) - 1)

    assert is_one_letter_away(word, word[:place] + letter + word[place:])
    assert is_one_letter_away(word, word[:place] + letter + word[place + 1 :])
    assert not is_one_letter_away(word, f"{letter}{word}{letter}")


def test_sources_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()
    (tmp_path / "dice.py").touch()
    (tmp_path / "a-1-py3-none-any.whl").touch()
    published = Published([{"plugins": [{"name": "nanobot-telegram", "ids": ["telegram"]}]}])

    found = [
        parse_source(text, tmp_path, published)
        for text in (
            "nanobot-web>=0.1",
            "telegram[x]>=2",
            "./weather",
            "dice.py",
            "a-1-py3-none-any.whl",
            "nanobot_weather @ file:weather",
            f"nanobot-weather @ file://{tmp_path}/weather",
            "weather",
        )
    ]

    assert [(each.kind, each.name or (each.path and each.path.name)) for each in found] == [
        ("name", "nanobot-web"),
        ("name", "nanobot-telegram"),
        ("folder", "weather"),
        ("file", "dice.py"),
        ("wheel", "a-1-py3-none-any.whl"),
        ("folder", "nanobot-weather"),
        ("folder", "nanobot-weather"),
        ("name", "weather"),
    ]
    assert found[1].requirement == "nanobot-telegram[x]>=2"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("./absent", "no such file"),
        ("x.txt/", "no such file"),
        ("a b", "expected the name of a distribution"),
        ("x @ https://me:hidden@a.example/x.whl", "addresses are not supported"),
        ("https://me:hidden@a.example/x.whl", "expected the name"),
        ("--upgrade", "expected the name"),
    ],
)
def test_other_sources_are_refused_without_their_passwords(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(InstallError, match=reason) as caught:
        parse_source(text, tmp_path, Published([]))
    assert "hidden" not in str(caught.value)


def test_passwords_and_queries_of_addresses_are_masked() -> None:
    text = "looked at https://me:hidden@a.example/files and http://b.example/x?token=hidden too"

    assert mask(text) == "looked at https://***@a.example/files and http://b.example/x?*** too"


def test_what_a_plugin_requires_by_an_extra_of_another_distribution_is_found(
    tmp_path: Path,
) -> None:
    write_distribution(tmp_path, "acme", requires=["library[socks]>=1"])
    write_distribution(tmp_path, "library", requires=['socks; extra == "socks"', "absent"])
    write_distribution(tmp_path, "socks", requires=["library"])
    write_distribution(tmp_path, "other")
    installed = {each.name: each for each in distributions(path=[str(tmp_path)])}

    assert needed_by(installed, ["acme"]) == {"acme", "library", "socks"}
    assert needed_by(installed, ["library"]) == {"library"}
