"""A new home takes its place in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core.app.lock import gateway_lock
from nanobot_core.moving.place import MovingError, new_home


def test_a_home_is_there_only_when_it_is_complete(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with new_home(home) as folder:
        (folder / "a").write_text("1")
        assert not home.exists()
    assert (home / "a").read_text() == "1"
    assert home.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_failure_leaves_the_old_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), new_home(home, replace=True):
        _ = 1 / 0
    assert (home / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_each_replaced_home_keeps_its_content(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for number in range(3):
        with new_home(home, replace=True) as folder:
            (folder / "a").write_text(str(number))
    kept = {path.name: (path / "a").read_text() for path in tmp_path.iterdir()}
    assert kept == {"home": "2", "home.replaced-1": "0", "home.replaced-2": "1"}


def test_where_folders_cannot_be_exchanged_the_old_home_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a").write_text("old")
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())  # a C library without renameat2
    with pytest.raises(MovingError, match="rename that folder"), new_home(home, replace=True):
        pass
    assert (home / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_what_every_command_writes_does_not_count_as_a_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "cache").mkdir(parents=True)
    (home / "logs").mkdir()
    (home / "logs" / "nanobot.log").write_text("line")
    with new_home(home) as folder:
        (folder / "a").touch()
    assert (home / "logs" / "nanobot.log").read_text() == "line"
    assert {path.name for path in home.iterdir()} == {"a", "logs"}


def test_a_home_with_a_gateway_is_not_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with (
        gateway_lock(home / "gateway"),
        pytest.raises(MovingError, match="gateway stop"),
        new_home(home, replace=True),
    ):
        pass


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    with pytest.raises(MovingError, match="a link"), new_home(tmp_path / "home"):
        pass


def test_two_commands_do_not_write_at_once(tmp_path: Path) -> None:
    with (
        new_home(tmp_path / "one"),
        pytest.raises(MovingError, match="another command"),
        new_home(tmp_path / "one"),
    ):
        pass
