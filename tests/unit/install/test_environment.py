"""Who owns an interpreter, and what may install there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core.errors import InstallError
from nanobot_core.install.environment import MARKER, Environment, Interpreter, find_environment


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """A virtual environment with pip."""
    found = Interpreter(
        python="/env/bin/python",
        prefix=tmp_path / "env",
        base_prefix=tmp_path / "base",
        site=tmp_path / "env" / "lib" / "python3" / "site-packages",
        scripts=tmp_path / "env" / "bin",
        stdlib=tmp_path / "stdlib",
        has_pip=True,
        uv=None,
    )
    for folder in (found.site, found.stdlib):
        folder.mkdir(parents=True)
    return found


def found(interpreter: Interpreter) -> Environment:
    return find_environment(interpreter, "install", "nanobot-x")


def refusal(interpreter: Interpreter) -> str:
    with pytest.raises(InstallError) as caught:
        found(interpreter)
    return str(caught.value)


def test_a_virtual_environment_has_its_own_pip(interpreter: Interpreter) -> None:
    assert found(interpreter).label == f"virtual environment {interpreter.prefix}, with pip"


@pytest.mark.parametrize(
    ("file", "text", "owner", "uses_uv"),
    [
        ("pyvenv.cfg", "home = /x\nuv = 0.9\n", "uv", True),
        ("uv-receipt.toml", "", "uv tool", True),
        ("pipx_metadata.json", "", "pipx", False),
    ],
)
def test_the_owner_is_recognised_by_its_file(
    interpreter: Interpreter, file: str, text: str, owner: str, uses_uv: bool
) -> None:
    (interpreter.prefix / file).write_text(text)

    environment = found(replace(interpreter, uv="/bin/uv"))

    assert (environment.owner, environment.uses_uv) == (owner, uses_uv)


def test_without_uv_on_the_path_pip_is_used_in_an_environment_of_uv(
    interpreter: Interpreter,
) -> None:
    (interpreter.prefix / "pyvenv.cfg").write_text("uv = 0.9\n")

    assert not found(interpreter).uses_uv


def test_without_pip_and_uv_the_remedy_installs_one(interpreter: Interpreter) -> None:
    assert "/env/bin/python -m ensurepip" in refusal(replace(interpreter, has_pip=False))


@pytest.mark.promise(18)
def test_a_system_wide_python_is_refused_with_the_line_for_an_image(
    interpreter: Interpreter,
) -> None:
    error = refusal(replace(interpreter, prefix=interpreter.base_prefix))

    assert "it is a system-wide Python" in error
    assert "add to its Dockerfile: RUN /env/bin/python -m pip install nanobot-x" in error
    assert "python3 -m venv" in error


def test_a_python_of_the_operating_system_is_refused(interpreter: Interpreter) -> None:
    (interpreter.stdlib / MARKER).touch()

    error = refusal(replace(interpreter, prefix=interpreter.base_prefix))

    assert "the operating system manages this Python (PEP 668)" in error


def test_a_read_only_environment_is_refused(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the system is given, because root can write everywhere."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)

    assert "is read-only for this account" in refusal(interpreter)


def test_without_pip_the_command_is_that_of_uv(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the system is given, because root can write everywhere."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    bare = replace(interpreter, has_pip=False)

    with pytest.raises(InstallError, match="RUN uv pip uninstall --python /env/bin/python x"):
        find_environment(bare, "uninstall", "--yes", "x")
