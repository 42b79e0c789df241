"""A plugin's small store is durable, bounded, and shared without loss."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from loguru import logger

from nanobot_core import JsonValue, PluginState, PrivateFileRefused, StateFull
from nanobot_core.plugins.state import FileState
from nanobot_core.testing import FakePluginContext

pytestmark = pytest.mark.anyio

LIMIT_S = 50.0
WRITER = """
import asyncio, sys
from pathlib import Path
from loguru import logger
from nanobot_core.plugins.state import FileState

async def main():
    state = FileState("x", Path(sys.argv[1]), logger)
    for number in range(int(sys.argv[2])):
        await state.update("count", lambda value: (value or 0) + 1)
        print(number, flush=True)

asyncio.run(main())
"""


def open_state(file: Path) -> FileState:
    return FileState("x", file, logger)


def one_more(value: JsonValue) -> JsonValue:
    return (value if isinstance(value, int) else 0) + 1


@pytest.mark.promise(42)
async def test_values_are_there_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "own" / "state.json"
    state: PluginState = open_state(file)

    await state.set("seen", {"ids": [1, 2]})
    await state.set("name", "Ann")
    await state.delete("name")
    await state.delete("never")

    again = open_state(file)
    assert await again.get("seen") == {"ids": [1, 2]}
    assert await again.get("name", "nobody") == "nobody"
    assert await again.keys() == ("seen",)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_what_a_caller_changes_afterwards_is_not_stored(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.json")
    given: list[JsonValue] = [1]

    await state.set("list", given)
    given.append(2)
    found = await state.get("list")
    assert isinstance(found, list)
    found.append(3)

    assert await state.get("list") == [1]


async def test_concurrent_changes_of_tasks_are_all_kept(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.json")

    await asyncio.gather(
        *(state.update("count", one_more) for _ in range(20)),
        *(state.set(f"key {number}", number) for number in range(5)),
    )

    assert await state.get("count") == 20
    assert len(await state.keys()) == 6


@pytest.mark.promise(42)
async def test_changes_of_other_processes_are_kept_and_seen(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = open_state(file)
    await state.set("count", 0)
    command = [sys.executable, "-c", WRITER, str(file), "15"]
    children = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL) for _ in range(2)
    ]

    for _ in range(15):
        await state.update("count", one_more)
    async with asyncio.timeout(LIMIT_S):
        codes = [await child.wait() for child in children]

    assert codes == [0, 0]
    assert await state.get("count") == 45


@pytest.mark.promise(42)
async def test_a_killed_process_leaves_each_completed_change(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    command = [sys.executable, "-c", WRITER, str(file), "100000"]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        lines = [await child.stdout.readline() for _ in range(10)]
        child.send_signal(signal.SIGKILL)
        lines += (await child.stdout.read()).splitlines()
        await child.wait()
    completed = len(lines)

    found = await open_state(file).get("count")

    assert isinstance(found, int)
    assert completed <= found <= completed + 1


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"{}" * 600_000])
async def test_a_damaged_file_is_renamed_and_reported(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(content)
    file.chmod(0o600)
    said: list[str] = []
    sink = logger.add(said.append, format="{message}")
    state = open_state(file)

    try:
        assert await state.get("x") is None
        await state.set("x", 1)
    finally:
        logger.remove(sink)

    assert (tmp_path / "state.json.corrupt-1").read_bytes() == content
    assert json.loads(file.read_text("utf-8")) == {"x": 1}
    assert len(said) == 1
    assert "damaged" in said[0]
    assert "state.json.corrupt-1" in said[0]


async def test_a_file_that_others_can_read_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"x": 1}', "utf-8")
    file.chmod(0o644)

    with pytest.raises(PrivateFileRefused, match="chmod 600"):
        await open_state(file).get("x")

    assert file.read_text("utf-8") == '{"x": 1}'


async def test_more_than_the_limit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.json")
    await state.set("x", "kept")

    with pytest.raises(StateFull, match="plugin 'x': its state would have"):
        await state.set("x", "y" * 1_000_001)

    assert await state.get("x") == "kept"


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), b"bytes"])
async def test_what_is_no_json_is_refused(tmp_path: Path, value: object) -> None:
    state = open_state(tmp_path / "state.json")

    with pytest.raises(TypeError, match="JSON"):
        await state.set("x", value)  # type: ignore[arg-type]

    assert await state.keys() == ()


async def test_a_failing_change_leaves_the_store_usable(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.json")

    with pytest.raises(ZeroDivisionError):
        await state.update("x", lambda _: 1 // 0)

    await state.set("x", 1)
    assert await state.get("x") == 1


async def test_a_cancelled_change_is_made_or_not_and_blocks_no_one(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.json")
    task = asyncio.create_task(state.set("x", 1))
    await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(state.set("y", 2), 5)
    assert await open_state(tmp_path / "state.json").get("y") == 2


async def test_the_context_of_tests_has_a_store(tmp_path: Path) -> None:
    async with FakePluginContext(tmp_path, plugin_id="dice") as ctx:
        await ctx.state.set("rolls", 3)

        assert json.loads((ctx.data_dir / "state.json").read_text("utf-8")) == {"rolls": 3}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=4))
def test_any_json_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, JsonValue]
) -> None:
    file = tmp_path_factory.mktemp("state") / "state.json"

    async def write_and_read() -> dict[str, JsonValue]:
        state = open_state(file)
        for key, value in values.items():
            await state.set(key, value)
        again = open_state(file)
        return {key: await again.get(key) for key in await again.keys()}

    assert asyncio.run(write_and_read()) == values
