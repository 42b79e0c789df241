"""Single-file plugins that the owner names under ``plugins.local``.

Nothing is loaded because it lies in some folder: each file is named in the configuration.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from nanobot_core.plugins.index import InstalledPlugin, id_problem

_PREFIX = "nanobot_local_"


def local_plugins(paths: Sequence[str], base: Path) -> tuple[InstalledPlugin, ...]:
    """Return the plugins that single files are; their ids are the stems of the files.

    Args:
        paths: as configured; ``~`` is expanded.
        base: folder that relative paths start from.
    """
    return tuple(_describe((base / Path(path).expanduser()).absolute()) for path in paths)


def load_file(file: str) -> ModuleType:
    """Return the module in `file`, executed at the first call.

    Its dotted names begin with ``__name__``: ``LazyTool("roll", f"{__name__}:RollTool")``.

    Raises:
        Exception: whatever executing it raises; nothing of it stays behind then.
    """
    name = _PREFIX + Path(file).stem
    known = sys.modules.get(name)
    if known is not None and known.__file__ == file:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"'{file}' is no Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _describe(path: Path) -> InstalledPlugin:
    problem = id_problem(path.stem)
    if path.suffix != ".py":
        problem = f"'{path}' is no Python file"
    elif not path.is_file():
        problem = f"there is no file '{path}'"
    return InstalledPlugin(
        id=path.stem,
        target=_PREFIX + path.stem,
        distribution=str(path),
        version="",
        problem=problem,
        file=str(path),
    )
