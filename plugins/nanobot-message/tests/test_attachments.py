"""Which files may be handed over, and that they arrive as they were."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import MediaStore, ToolDenied, ToolError, ToolInputError
from nanobot_message.message_tool import MessageTool

if TYPE_CHECKING:
    from conftest import Desk, MakeDesk


async def test_files_are_sent_in_order_with_their_names(desk: Desk) -> None:
    desk.put("out/report.pdf", b"first")
    absolute = desk.put("photo.png", b"second")

    result = await desk.call(content="", media=["out/report.pdf", str(absolute)])

    paths = [Path(path) for path in desk.sent[0].media]
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert [path.name for path in paths] == ["report.pdf", "photo.png"]
    assert result.content == "Message sent to telegram:1 with 2 attachments"


async def test_one_file_is_counted_in_the_singular(desk: Desk) -> None:
    desk.put("a.txt")
    result = await desk.call(content="", media=["a.txt"])
    assert result.content == "Message sent to telegram:1 with 1 attachment"


async def test_what_arrives_is_the_file_as_it_was_when_it_was_sent(desk: Desk) -> None:
    path = desk.put("a.txt", b"before")
    await desk.call(content="x", media=["a.txt"])

    path.write_bytes(b"after")
    path.unlink()
    path.symlink_to("/etc/passwd")

    assert Path(desk.sent[0].media[0]).read_bytes() == b"before"


async def test_received_files_may_be_passed_on(desk: Desk) -> None:
    folder = desk.context.media.folder / "entry"
    folder.mkdir(parents=True)
    (folder / "voice.ogg").write_bytes(b"OggS")

    await desk.call(content="x", media=[str(folder / "voice.ogg")])

    assert Path(desk.sent[0].media[0]).read_bytes() == b"OggS"


async def test_files_elsewhere_are_refused_unless_the_owner_opens_the_folder(
    make_desk: MakeDesk, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("content")

    with pytest.raises(ToolDenied, match=r"outside\.txt.*outside the workspace"):
        await make_desk().call(content="x", media=[str(outside)])
    opened = make_desk(extraRoots=[str(tmp_path)])
    await opened.call(content="x", media=[str(outside)])
    assert len(opened.sent) == 1


@pytest.mark.parametrize("place", ["itself", "link", "linked folder", "dots", "hard link"])
async def test_the_configuration_is_out_of_reach_by_every_way(
    make_desk: MakeDesk, tmp_path: Path, place: str
) -> None:
    desk = make_desk(extraRoots=[str(tmp_path)])
    config = desk.context.protected_paths[0]
    config.parent.mkdir(parents=True)
    config.write_text("api_key: secret")
    named = {
        "itself": config,
        "link": desk.workspace / "link",
        "linked folder": desk.workspace / "folder" / config.name,
        "dots": desk.workspace / ".." / config.relative_to(tmp_path),
        "hard link": desk.workspace / "hard",
    }
    (desk.workspace / "link").symlink_to(config)
    (desk.workspace / "folder").symlink_to(config.parent)
    os.link(config, desk.workspace / "hard")

    with pytest.raises(ToolDenied):
        await desk.call(content="x", media=[str(named[place])])
    assert desk.sent == []


async def test_a_link_out_of_the_workspace_is_refused(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("content")
    (desk.workspace / "inside.txt").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(ToolDenied):
        await desk.call(content="x", media=["inside.txt"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.txt", r"missing\.txt.*no such file"),
        ("folder", r"folder"),
        ("pipe", r"pipe"),
        ("empty.txt", r"empty\.txt' is empty"),
        ("large.bin", r"large\.bin' is larger than 1,000 bytes"),
        ("https://example.org/a.png", r"'https://example\.org/a\.png' is an address"),
        ("HTTP://example.org/a.png", "is an address"),
        ("file:///etc/passwd", "is an address"),
        ("data:image/png;base64,AAAA", "is an address"),
        ("a\0b", "NUL"),
        ("x" * 5_000, "too long"),
    ],
)
async def test_what_cannot_be_sent_is_named_with_the_reason(
    make_desk: MakeDesk, name: str, words: str
) -> None:
    desk = make_desk(maxFileBytes=1_000)
    desk.put("fine.txt")
    desk.put("empty.txt", b"")
    desk.put("large.bin", b"x" * 1_001)
    (desk.workspace / "folder").mkdir()
    os.mkfifo(desk.workspace / "pipe")

    with pytest.raises(ToolInputError, match=words):
        await desk.call(content="x", media=["fine.txt", name])
    assert desk.sent == []
    assert not desk.context.media.folder.exists()


async def test_a_file_of_the_largest_size_is_sent(make_desk: MakeDesk) -> None:
    desk = make_desk(maxFileBytes=3_000_000)
    content = os.urandom(3_000_000)
    desk.put("a.bin", content)

    await desk.call(content="", media=["a.bin"])

    assert Path(desk.sent[0].media[0]).read_bytes() == content


async def test_too_many_files_are_refused(make_desk: MakeDesk) -> None:
    desk = make_desk(maxFiles=2)
    desk.put("a.txt")
    with pytest.raises(ToolInputError, match="3 files and 2 are allowed"):
        await desk.call(content="x", media=["a.txt"] * 3)


async def test_a_file_that_has_grown_since_it_was_checked_is_refused(make_desk: MakeDesk) -> None:
    desk = make_desk(maxFileBytes=1_000)
    path = desk.put("log", b"x" * 1_000)

    class Growing(MediaStore):
        async def save(
            self, name: str, content: AsyncIterable[bytes], *, max_bytes: int | None = None
        ) -> Path:
            path.write_bytes(b"x" * 1_001)
            return await super().save(name, content, max_bytes=max_bytes)

    desk.context.media = Growing(desk.context.media.folder)
    desk.tool = MessageTool(desk.context)

    with pytest.raises(ToolInputError, match="larger than 1,000 bytes"):
        await desk.call(content="x", media=["log"])
    assert desk.sent == []
    assert not any(desk.context.media.folder.rglob("*"))


async def test_a_link_that_takes_the_place_of_a_checked_file_is_refused(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    path = desk.put("a.txt")

    class Swapping(MediaStore):
        async def save(
            self, name: str, content: AsyncIterable[bytes], *, max_bytes: int | None = None
        ) -> Path:
            path.unlink()
            path.symlink_to(tmp_path / "outside.txt")
            return await super().save(name, content, max_bytes=max_bytes)

    desk.context.media = Swapping(desk.context.media.folder)
    desk.tool = MessageTool(desk.context)

    with pytest.raises(ToolDenied, match="a link took its place"):
        await desk.call(content="x", media=["a.txt"])
    assert desk.sent == []


async def test_a_disk_that_takes_no_copy_is_reported(desk: Desk) -> None:
    desk.put("a.txt")
    desk.context.media.folder.write_text("a file is in the way")
    with pytest.raises(ToolError, match=r"a\.txt' cannot be copied for sending"):
        await desk.call(content="x", media=["a.txt"])


@pytest.mark.parametrize("passes", range(0, 40, 3))
async def test_a_call_that_is_stopped_sends_nothing_and_leaves_nothing_open(
    desk: Desk, passes: int
) -> None:
    desk.put("a.bin", os.urandom(8_000_000))
    handles = _open_handles()

    async with asyncio.TaskGroup() as group:
        call = group.create_task(desk.call(content="x", media=["a.bin"]))
        for _ in range(passes):
            await asyncio.sleep(0)
        call.cancel()

    assert call.cancelled()
    assert desk.sent == []
    folder = desk.context.media.folder
    assert not folder.exists() or not any(folder.rglob("*"))
    # A thread that opens the file cannot be stopped; what it opened is closed then.
    async with asyncio.timeout(5):
        while _open_handles() > handles:  # noqa: ASYNC110 - the kernel tells no one
            await asyncio.sleep(0)


def _open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
