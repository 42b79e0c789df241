"""``python -m nanobot_core`` is the command ``nanobot``."""

from __future__ import annotations

from nanobot_core.cli import main

main()
