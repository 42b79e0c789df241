"""Sphinx settings. `nox -s docs` builds with every warning an error."""

from __future__ import annotations

import sys
from pathlib import Path

from nanobot_core import __version__

# Extensions that render pages from the code (hooks, settings) are in _ext and listed below.
sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# One of them reads the tests.
sys.path.insert(0, str(Path(__file__).parents[1]))

project = "nanobot"
author = "nanobot contributors"
copyright = "2026, nanobot contributors"
release = __version__
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser", "generated"]
exclude_patterns = ["_build", "_ext"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"nanobot {release}"
