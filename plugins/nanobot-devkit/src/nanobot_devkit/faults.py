"""Where the code of a plugin failed: file and line."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 60.0
_PROBE = """\
import importlib, runpy, sys, traceback
code, module, *paths = sys.argv[1:]
sys.path[1:1] = paths
try:
    importlib.import_module(module) if paths else runpy.run_path(module)
except BaseException as error:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(code):
            print(f"{frame.filename}:{frame.lineno}")
            break
"""


def place_in(error: BaseException | None, code: Path) -> str:
    """Return file and line of the plugin's code that an error, or its cause, comes from.

    Args:
        error: what was raised.
        code: folder or file of the plugin.

    Returns:
        Relative to the folder above the code; empty if the error does not come from there.
    """
    found = ""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            if _is_in(frame.filename, code):
                found = f"{shown(Path(frame.filename), code)}:{frame.lineno}"
        error = error.__cause__ or error.__context__
    return found


def place_of_import(module: str, paths: Sequence[str], code: Path) -> str:
    """Return where the import of a plugin fails, tried in a child process. Blocks.

    Args:
        module: its entry module, or the path of a single file.
        paths: precede ``sys.path``; none for a single file.
        code: folder or file of the plugin.
    """
    child = subprocess.run(
        [sys.executable, "-P", "-B", "-c", _PROBE, str(code), module, *paths],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=False,
    )
    place = child.stdout.strip().rpartition("\n")[2]
    file, _, line = place.rpartition(":")
    return f"{shown(Path(file), code)}:{line}" if file else ""


def shown(file: Path, code: Path) -> str:
    """Return a file of the plugin as a person knows it."""
    return str(file.relative_to(code.parent)) if _is_in(str(file), code) else str(file)


def _is_in(file: str, code: Path) -> bool:
    return Path(file) == code or Path(file).is_relative_to(code)
