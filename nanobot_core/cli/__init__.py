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
    # Starting makes many objects that live as long as the process; searching them for garbage
    # again and again is a twentieth of a short command's time.
    gc.set_threshold(50_000, 20, 50)
    from nanobot_core.cli.root import run

    run()
