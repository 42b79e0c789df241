"""Exact counts of tokens: only with what is on this machine, and only when they matter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from nanobot_core import Message
from nanobot_core.agent import encoding
from nanobot_core.agent.encoding import count_exactly
from nanobot_core.agent.shortening import SUMMARY_HEADING, input_budget
from nanobot_core.agent.tokens import TokenEstimator, measure
from tests.unit.agent.conftest import Bench

pytestmark = pytest.mark.anyio
FILE, CONTENT = "an-encoding", b"the tokens of a model"


class Library:
    """Stands in for tiktoken, whose encodings cannot be had offline: two characters are a token."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_encoding(self, name: str) -> SimpleNamespace:
        self.asked.append(name)
        return SimpleNamespace(encode_ordinary=self.encode)

    def encode(self, text: str) -> Sequence[int]:
        return range(len(text) // 2)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "tiktoken", found)
    monkeypatch.setattr(encoding, "find_spec", lambda name: name)
    monkeypatch.setattr(encoding, "_ENCODINGS", {"new": (FILE, sha256(CONTENT).hexdigest())})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return found


def test_an_encoding_in_the_cache_counts(library: Library, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(CONTENT)
    assert count_exactly(["abcd", "efghij"]) == 5
    assert library.asked == ["new"]


@pytest.mark.parametrize("content", [None, b"", CONTENT[:-1]])
def test_one_that_would_be_downloaded_is_never_asked_for(
    library: Library, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    assert count_exactly(["abcd"]) is None
    assert library.asked == []


def test_an_empty_variable_means_no_cache(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert count_exactly(["abcd"]) is None


def test_without_the_library_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "find_spec", lambda _name: None)
    assert count_exactly(["abcd"]) is None


async def test_the_count_replaces_the_first_guess_and_not_what_a_provider_reported(
    library: Library, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(CONTENT)
    messages = [Message(role="user", content="x" * 8_000)]
    fresh, learned = TokenEstimator(), TokenEstimator()
    learned.learn(measure(messages), 1_604)
    before = learned.bytes_per_token
    await fresh.calibrate(messages)
    await learned.calibrate(messages)
    assert fresh.count_all(messages) == 4_004
    assert learned.bytes_per_token == before
    assert library.asked == ["new"]


async def test_a_short_request_is_not_counted_and_a_long_one_is_before_it_is_summarised(
    bench: Bench, library: Library, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(CONTENT)
    window = {"context_window_tokens": 6_000, "max_tokens": 500}
    await bench.run("hello", spec=bench.spec("hi", **window))
    assert library.asked == []
    text = "x" * 4 * input_budget(6_000, 500)
    await bench.run("notes", "hello", spec=bench.spec("old", text, "now", **window))
    assert library.asked == ["new"]
    assert bench.provider.requests[-1].messages[1].text == f"{SUMMARY_HEADING}\nnotes"


async def test_scripts_with_more_tokens_are_estimated_higher() -> None:
    estimator = TokenEstimator()
    latin, chinese = (Message(role="user", content=letter * 400) for letter in "a平")
    assert (estimator.count_all([latin]), estimator.count_all([chinese])) == (104, 304)
    assert estimator.chars_for(100, [chinese]) * 3 // 4 == 99
