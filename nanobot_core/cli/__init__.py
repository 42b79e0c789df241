"""The command line. It is the only part of nanobot that prints."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with, and exit.

    ``--version`` alone is answered at once: it needs neither typer nor any plugin.
    """
    if sys.argv[1:] == ["--version"]:
        from nanobot_core._version import __version__

        print(f"nanobot {__version__}")
        return
    # A start makes many objects that live as long as the process. Searching them for garbage takes
    # a quarter of a short command's time, most of it when the process ends.
    gc.set_threshold(200_000, 20, 50)
    from nanobot_core.cli.root import run

    try:
        run()
    finally:
        gc.freeze()  # the interpreter searches what is left, but not what is frozen
