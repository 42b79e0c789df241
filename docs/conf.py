"""Sphinx settings. `nox -s docs` builds with every warning an error."""

from __future__ import annotations

from nanobot_core import __version__

project = "nanobot"
author = "nanobot contributors"
copyright = "2026, nanobot contributors"
release = __version__
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser"]
exclude_patterns = ["_build", "_ext"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"nanobot {release}"
