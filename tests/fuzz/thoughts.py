"""The thinking filter: nothing of a text is lost, and its pieces do not change the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nanobot_core.thoughts import ThoughtFilter, split_thoughts
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"<think>", b"</think>", b"<thinking>", b"</thinking>\n", b"<thought>", b"</thought>",
    b"<reasoning>", b"<seed:think>", b"[THINK]", b"[/THINK]", "◁think▷".encode(),
    "◁/think▷".encode(), b"<|channel>thought", b"<channel|>", b"<|channel|>analysis<|message|>",
    b"<|channel|>commentary", b"<|start|>assistant", b"<|channel|>final<|message|>", b"<|end|>",
    b"```", b"~~~", b"\n    ", b"\r\n", b"`",
)  # fmt: skip
_MARKS: Final = ("<", "[", "◁")


def fuzz_one(data: bytes) -> None:
    """Feed a text whole, in pieces, and letter by letter."""
    choices = Choices(data)
    sizes = [1 + choices.byte() % 32 for _ in range(4)]
    text = choices.rest().decode("utf-8", "replace")
    whole = _fed([text])
    assert whole == _fed(_pieces(text, sizes)) == _fed(list(text))
    visible, thought = whole
    assert len(visible) + len(thought) <= len(text)
    if not any(mark in text for mark in _MARKS):
        assert whole == (text, "")
        assert split_thoughts(text) == (text, "")
    left = iter(text)
    assert all(letter in left for letter in visible), "the answer is in another order"
    assert split_thoughts(text)[1] == thought.strip()
    assert split_thoughts(visible)[0].strip() in visible


def seeds() -> Iterator[bytes]:
    """Yield texts in the forms that models use."""
    for text in (
        "<think>hm</think>\n\nHello",
        "Use `<think>` like this:\n```\n<think>\nx\n</think>\n```\ndone",
        "a hidden start\n</think>\nHello",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
        "Hello\n<think>\nlate\n</think>\nand on",
        "<thought>one</thought><reasoning>two</reasoning> three",
        "Say <think> and never close it.",
        "~~~~\n~~~\n<think>in code</think>\n~~~~\n  </thinking>\nend",
    ):
        yield b"\x03\x01\x07\x1f" + text.encode()


def _pieces(text: str, sizes: list[int]) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[start : start + size])
        start += size
    return pieces


def _fed(pieces: list[str]) -> tuple[str, str]:
    """Return what is shown in the end, and the thinking."""
    thoughts = ThoughtFilter()
    visible = thought = ""
    for portion in (*map(thoughts.feed, pieces), thoughts.finish()):
        if portion.is_void:
            visible, thought = "", visible + thought
        visible, thought = visible + portion.visible, thought + portion.thought
    return visible, thought
