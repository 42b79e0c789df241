"""Small mappings that outlive a connection or the process."""

from __future__ import annotations

import asyncio
import stat
import tempfile
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core.chat import Recent, Records

Value: TypeAlias = int | str
pytestmark = pytest.mark.anyio
KEYS = st.sampled_from(["a", "b", "c", "ü\n", ""])
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers() | st.text(max_size=3)), max_size=12)


@settings(max_examples=25)
@given(STEPS)
def test_another_process_finds_the_newest_entries(
    steps: list[tuple[str, int | str | None]],
) -> None:
    async def run(folder: Path) -> None:
        records, known = Records(folder / "x.json", size=3), dict[str, Value]()
        for key, value in steps:
            if value is None:
                await records.drop([key])
                known.pop(key, None)
            else:
                await records.put(key, value)
                known.pop(key, None)
                known[key] = value
                known = dict(list(known.items())[-3:])
        assert await records.entries() == known
        assert await Records(folder / "x.json", size=3).entries() == known

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@pytest.mark.parametrize("content", ["", "{", "[1]", "7", "[" * 100_000])
async def test_a_damaged_file_is_kept_aside(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    records = Records(file)
    assert await records.get("a") is None
    await records.put("a", 1)
    assert (tmp_path / "x.json.corrupt-1").read_text() == content
    assert await Records(file).get("a") == 1


async def test_simultaneous_changes_are_all_on_disk_when_they_return(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "x.json"
    records = Records(file)
    await asyncio.gather(*(records.put(str(number), number) for number in range(50)))
    assert await Records(file).entries() == {str(number): number for number in range(50)}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_what_cannot_be_written_is_an_error_and_known_here(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    records = Records(tmp_path / "x" / "file.json")
    with pytest.raises(OSError, match="x"):
        await records.put("a", 1)


def test_recent_forgets_the_oldest() -> None:
    recent: Recent[str, int] = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.put(key, 1)
    recent.drop("x")
    assert [recent.get(key) for key in "abc"] == [1, None, 1]
