"""``python -m nanobot_core`` is the command ``nanobot``."""

from __future__ import annotations

import os
import sys

# ``-m`` puts the current directory first, and a typer.py in it must not run. Like the first entry
# of the installed command, the one in its place is the folder of programs.
if not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib costs time
    sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120 - likewise

from nanobot_core.cli import main

main()
