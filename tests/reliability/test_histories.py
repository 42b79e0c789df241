"""Damaged histories and killed writers: no readable user text is lost, the session goes on."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot_core.contracts.store import SessionState
from nanobot_core.messages import Message, ToolCall
from nanobot_core.sessions.folder import file_name
from nanobot_core.sessions.history import align
from nanobot_core.sessions.jsonl import JsonlSessionStore

KEY = "cli:direct"
START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = 100_000
FLAVOURS = ["plain", 'quo"ted', "line\nfeed", "back\\slash", "Zoë 🙂", '{"role": "x"}', "tab\t{"]


def conversation(rng: random.Random) -> list[Message]:
    messages = []
    for turn in range(rng.randint(1, 6)):
        text = f"<{turn}> {rng.choice(FLAVOURS)} {rng.choice(FLAVOURS)}"
        messages.append(Message(role="user", content=text, timestamp=START))
        for iteration in range(rng.randint(0, 2)):
            # Half of the services number their calls from the start in each response.
            prefix = "call" if rng.random() < 0.5 else f"t{turn}i{iteration}"
            calls = [
                ToolCall(f"{prefix}_{number}", "look", {"at": {"role": "user", "content": "no"}})
                for number in range(rng.randint(1, 3))
            ]
            messages.append(Message(role="assistant", tool_calls=tuple(calls)))
            messages += [
                Message(role="tool", content="seen", tool_call_id=call.id, name="look")
                for call in calls
            ]
        messages.append(Message(role="assistant", content=f"answer {turn}"))
    return messages


def cut_out(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 300) :]


def cut_end(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def overwrite(rng: random.Random, data: bytes) -> bytes:
    start, length = rng.randrange(len(data) + 1), rng.randint(1, 40)
    filler = rng.choice([b"\0" * length, rng.randbytes(length), b'"' * length, b"\n" * length])
    return data[:start] + filler + data[start + length :]


def on_lines(
    change: Callable[[random.Random, list[bytes]], Sequence[bytes]],
) -> Callable[[random.Random, bytes], bytes]:
    def damage(rng: random.Random, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(change(rng, lines)) if lines else data

    return damage


def shuffle(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return rng.sample(lines, len(lines))


def double(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line for line in lines for _ in range(1 + (rng.random() < 0.2))]


def drop(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if rng.random() > 0.2]


def join(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line.rstrip(b"\n") if rng.random() < 0.2 else line for line in lines]


def drop_fields(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    changed = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            changed.append(line)
            continue
        # No number: as `last_consolidated` it would rightly take messages out of sight.
        wrong: object = rng.choice([None, [], {}, "x"])
        kept = {
            name: wrong if rng.random() < 0.05 else value
            for name, value in (record.items() if isinstance(record, dict) else ())
            if rng.random() > 0.1
        }
        changed.append(json.dumps(kept).encode() + b"\n")
    return changed


DAMAGES = [cut_out, cut_end, overwrite] + [
    on_lines(change) for change in (shuffle, double, drop, join, drop_fields)
]


def readable_user_texts(data: bytes) -> Iterator[str]:
    """Yield user texts that a patient person could still read out of `data`."""
    for raw in data.split(b"\n"):
        line = raw.decode("utf-8", "replace")
        try:
            record = json.loads(raw.decode("utf-8"))
        except ValueError:
            head = line
            for joint in re.finditer(r'(?<!^)\{"(role|_type)"', line):
                try:
                    yield from user_text(json.loads(line[joint.start() :]))
                except ValueError:
                    continue
                head = line[: joint.start()]
                break
            if broken := re.match(r'\{"role": "user", "content": "((?:[^"\\]|\\["\\nt])*)', head):
                yield json.loads(f'"{broken[1]}"', strict=False)
        else:
            yield from user_text(record)


def user_text(record: object) -> Iterator[str]:
    if isinstance(record, dict) and record.get("role") == "user":
        content = record.get("content")
        if isinstance(content, str):
            yield content


def assert_legal(history: list[Message]) -> None:
    """The rules of all chat completion services together."""
    assert not history or history[0].role == "user"
    ids: list[str | None] = []
    position = 0
    while position < len(history):
        message = history[position]
        position += 1
        assert message.role in ("user", "assistant")
        assert message.content or message.tool_calls
        expected = [call.id for call in message.tool_calls]
        assert not expected or message.role == "assistant"
        assert all(call.name for call in message.tool_calls)
        found = [result.tool_call_id for result in history[position : position + len(expected)]]
        assert found == expected
        assert all(m.role == "tool" for m in history[position : position + len(expected)])
        position += len(expected)
        ids += expected
    assert all(ids)
    assert len(ids) == len(set(ids))


async def survive(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = folder / file_name(KEY)
    store = JsonlSessionStore(folder, fsync=False)
    messages = conversation(rng)
    while messages:
        size = rng.randint(1, 8)
        state = SessionState(created_at=START, updated_at=START)
        await store.append(KEY, messages[:size], state)
        messages = messages[size:]
    data = path.read_bytes()
    for damage in rng.sample(DAMAGES, rng.randint(1, 3)):
        data = damage(rng, data)
    path.write_bytes(data)

    store = JsonlSessionStore(folder, fsync=False)
    session = await store.load(KEY, ALL)
    loaded = session.messages if session else ()
    history = align(loaded)
    assert_legal(history)
    assert align(history) == history
    kept = [message.text for message in history if message.role == "user"]
    for text in readable_user_texts(data):
        assert not text.strip() or any(text in one for one in kept)

    state = session.state if session else SessionState(created_at=START, updated_at=START)
    await store.append(KEY, [Message(role="user", content="and now?")], state)
    again = await JsonlSessionStore(folder, fsync=False).load(KEY, ALL)
    assert again is not None
    assert again.repaired == ()
    assert again.messages == (*loaded, Message(role="user", content="and now?"))
    assert_legal(align(again.messages))
    await store.delete(KEY)
    assert list(folder.iterdir()) == []


async def survive_all(seeds: range) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                await survive(Path(folder), seed)
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise


@pytest.mark.anyio
async def test_five_hundred_damaged_histories_are_usable() -> None:
    await survive_all(range(500))


@pytest.mark.anyio
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_ten_thousand_damaged_histories_are_usable() -> None:
    await survive_all(range(500, 10_000))


WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from nanobot_core.contracts.store import SessionState
from nanobot_core.messages import Message
from nanobot_core.sessions.jsonl import JsonlSessionStore

async def main(folder, first):
    store = JsonlSessionStore(Path(folder))
    number = first
    while True:
        now = datetime.now(UTC)
        # Large enough for several pages, so that the signal may fall into a write.
        content = f"{number} " + "x" * 200_000
        await store.append(
            "cli:direct",
            [Message(role="user", content=content)],
            SessionState(created_at=now, updated_at=now),
        )
        print(number, flush=True)
        number += 1

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def acknowledged_until_killed(folder: Path, first: int, acknowledgements: int) -> int:
    """Return the number of the last append that a killed writer reported as done."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(folder), str(first), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            for _ in range(acknowledgements):
                assert await process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        rest = await process.stdout.read()
        await process.wait()
    return first + acknowledgements + rest.count(b"\n") - 1


@pytest.mark.anyio
async def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(9)
    following = 0
    for _ in range(20):
        last = await acknowledged_until_killed(tmp_path, following, rng.randint(1, 6))
        session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
        assert session is not None
        numbers = [int(message.text.split()[0]) for message in session.messages]
        # One more may have been written without word of it.
        assert numbers[: last + 1] == list(range(last + 1))
        assert len(numbers) <= last + 2
        assert_legal(align(session.messages))
        again = await JsonlSessionStore(tmp_path).load(KEY, ALL)
        assert again is not None
        assert again.repaired == ()
        following = len(numbers)
    assert [path.name for path in tmp_path.iterdir()] == [file_name(KEY)]
