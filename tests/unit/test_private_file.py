"""PrivateFile: only its owner reads it, and it changes in one step."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import PrivateFile, PrivateFileRefused


@pytest.fixture
def file(tmp_path: Path) -> PrivateFile:
    return PrivateFile(tmp_path / "tokens" / "x.json")


def test_only_the_owner_can_read_it_whatever_the_umask(file: PrivateFile) -> None:
    former = os.umask(0)
    try:
        file.replace({"a": 1})
    finally:
        os.umask(former)

    assert file.read() == {"a": 1}
    assert [path.stat().st_mode & 0o777 for path in (file.path, file.path.parent)] == [0o600, 0o700]
    assert file.remove()
    assert not file.remove()
    assert file.read() is None


def _open_to_group(path: Path) -> None:
    path.chmod(0o640)


def _damaged(path: Path) -> None:
    path.write_text('{"a": ')


def _cut(path: Path) -> None:
    path.write_text("")


def _huge(path: Path) -> None:
    path.write_text('{"a": "' + "x" * 1_000_000 + '"}')


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _open_folder(path: Path) -> None:
    path.parent.chmod(0o770)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_open_to_group, "run chmod 600 '"),
        (_damaged, "it is damaged"),
        (_cut, "it is damaged"),
        (_huge, "it is damaged"),
        (_link, "it is a link"),
        (_pipe, "it is not a regular file"),
        (_open_folder, "run chmod 700 '"),
    ],
)
def test_a_file_that_others_can_use_or_that_is_damaged_is_refused(
    file: PrivateFile, spoil: Callable[[Path], None], reason: str
) -> None:
    file.replace({"a": 1})
    spoil(file.path)

    with pytest.raises(PrivateFileRefused, match=reason):
        file.read()


def test_a_file_of_another_account_is_refused(
    file: PrivateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.replace({"a": 1})
    monkeypatch.setattr(os, "geteuid", lambda: file.path.stat().st_uid + 1)

    with pytest.raises(PrivateFileRefused, match="belongs to another account"):
        file.read()


def test_on_a_full_disk_the_present_content_stays(
    file: PrivateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.replace({"a": 1})

    def write(_handle: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        file.reserve()

    assert file.read() == {"a": 1}
    assert list(file.path.parent.iterdir()) == [file.path]


@pytest.mark.anyio
async def test_a_killed_writer_leaves_the_old_content_and_no_lock(file: PrivateFile) -> None:
    file.replace({"a": 1})
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom nanobot_core import PrivateFile\n"
        "async def main():\n"
        "    file = PrivateFile(Path(sys.argv[1]))\n"
        "    async with file.locked(5):\n"
        "        file.reserve()\n"
        "        print('ready', flush=True)\n"
        "        sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", program, str(file.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        with pytest.raises(TimeoutError):
            async with file.locked(0.01):
                pass
        assert list(file.path.parent.glob(".*.tmp"))
        writer.send_signal(signal.SIGKILL)
        writer.wait(5)

    async with file.locked(5):
        assert file.read() == {"a": 1}
        assert not list(file.path.parent.glob(".*.tmp"))
