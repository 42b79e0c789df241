"""Calls of a platform to the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from nanobot_core.chat import WebhookRoute, header_of

pytestmark = pytest.mark.anyio
SECRET = b"knows"


async def status_of(
    parts: list[bytes], method: str = "POST", answer: bool | None = True
) -> tuple[int, list[object], list[str]]:
    """Return the status, what was taken, and which callers were proven."""
    taken: list[object] = []
    proven: list[str] = []
    route = WebhookRoute()

    async def take(content: object) -> bool:
        taken.append(content)
        return bool(answer)

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    if answer is not None:
        route.take = take
    caller = {"nanobot.caller": {"proven": lambda: proven.append("yes")}}
    status = await route.status_of(
        {"type": "http", "method": method, "headers": [], "extensions": caller},
        receive,
        lambda body: SECRET in body,
        max_bytes=40,
    )
    return status, taken, proven


@pytest.mark.parametrize(
    ("parts", "answer", "status"),
    [
        ([b'["knows"', b", 1]"], True, 200),
        ([b'["knows"]'], False, 503),
        ([b'["knows"]'], None, 503),
        ([b'["knows"'], True, 400),
        ([b"knows" + b"[" * 30], True, 400),
        ([b"[1]"], True, 404),
        ([b"knows" + b" " * 40], True, 413),
        ([], True, 413),
    ],
)
async def test_the_answer_says_whether_the_call_is_stored(
    parts: list[bytes], answer: bool | None, status: int
) -> None:
    found, taken, proven = await status_of(parts, answer=answer)
    assert found == status
    assert taken == ([["knows", 1]] if status == 200 else [["knows"]] if answer is False else [])
    assert bool(proven) is (status in {200, 400, 503})


async def test_other_methods_are_refused_without_reading() -> None:
    assert (await status_of([b'["knows"]'], method="GET"))[0] == 405


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ([(b"X-Secret", b"a")], b"a"),
        ([(b"x-secret", b"a"), (b"x-secret", b"b")], None),
        ([(b"other", b"a")], None),
    ],
)
def test_a_header_counts_if_there_is_one(
    headers: list[tuple[bytes, bytes]], value: bytes | None
) -> None:
    assert header_of({"headers": headers}, b"x-secret") == value
