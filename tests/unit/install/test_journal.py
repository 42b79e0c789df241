"""Whatever happens to the recorded files, undoing restores them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core.errors import InstallError
from nanobot_core.install.environment import Interpreter
from nanobot_core.install.journal import Journal

NAMES = ["a.py", "b/c.py", "b/d.txt", "e/f/g.py", "__pycache__/a.cpython-311.pyc", "h"]
FILES = st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=4), max_size=6)


def interpreter_in(folder: Path) -> Interpreter:
    prefix = folder / "env"
    site, scripts = prefix / "lib" / "python3" / "site-packages", prefix / "bin"
    for each in (site, scripts):
        each.mkdir(parents=True)
    return Interpreter(
        python="python",
        prefix=prefix,
        base_prefix=folder,
        site=site,
        scripts=scripts,
        stdlib=folder,
        has_pip=True,
        uv=None,
    )


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@given(before=FILES, after=FILES, twice=st.booleans())
def test_undoing_restores_every_recorded_file(
    before: dict[str, bytes], after: dict[str, bytes], twice: bool
) -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        interpreter = interpreter_in(folder)
        write(interpreter.site, before)
        original = contents(interpreter.prefix)
        journal = Journal(folder / "home" / "installing")
        paths = [interpreter.site / name for name in NAMES]
        journal.begin("test", interpreter, replaced=(), created=paths, files=paths)

        for name in before:
            (interpreter.site / name).unlink()
        write(interpreter.site, after)
        (interpreter.site / "~half").mkdir()
        if twice:  # interrupted before the journal was removed
            kept = folder / "kept"
            shutil.copytree(folder / "home", kept)
            journal.undo()
            shutil.copytree(kept, folder / "home", dirs_exist_ok=True)
        journal.undo()

        assert contents(interpreter.prefix) == original
        assert not journal.is_open


def test_what_others_have_created_meanwhile_stays(tmp_path: Path) -> None:
    interpreter = interpreter_in(tmp_path)
    journal = Journal(tmp_path / "home" / "installing")
    created = [interpreter.site / "mine" / "a.py"]
    journal.begin("test", interpreter, replaced=(), created=created, files=())
    write(interpreter.site, {"mine/a.py": b"", "mine/other.py": b"", "theirs/b.py": b""})

    journal.undo()

    assert sorted(name for name in contents(interpreter.site) if name.endswith(".py")) == [
        "mine/other.py",
        "theirs/b.py",
    ]


def test_links_and_modes_are_restored(tmp_path: Path) -> None:
    interpreter = interpreter_in(tmp_path)
    link, script = interpreter.site / "link", interpreter.scripts / "run"
    link.symlink_to("absent")
    script.write_text("#!")
    script.chmod(0o751)
    journal = Journal(tmp_path / "home" / "installing")
    journal.begin("test", interpreter, replaced=(), created=(), files=(link, script))
    link.unlink()
    script.chmod(0o600)

    journal.undo()

    assert str(link.readlink()) == "absent"
    assert script.stat().st_mode & 0o777 == 0o751


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "installing"
    folder.mkdir()
    (folder / "journal.json").write_text("{")
    journal = Journal(folder)

    assert journal.is_open
    with pytest.raises(InstallError, match=r"cannot be read: .*journal\.json"):
        journal.undo()


def test_a_file_that_cannot_be_restored_leaves_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = interpreter_in(tmp_path)
    file = interpreter.site / "a.py"
    file.write_text("old")
    journal = Journal(tmp_path / "home" / "installing")
    journal.begin("test", interpreter, replaced=(), created=(), files=(file,))
    file.write_text("new")

    def fail(*_args: object, **_named: object) -> None:
        raise OSError(28, os.strerror(28), str(file))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", fail)
        with pytest.raises(InstallError, match="No space left"):
            journal.undo()
    journal.undo()

    assert file.read_text() == "old"
