"""The table of extras, rendered from the metadata of the packages."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = {"all", "standard", "http", "chat"}
"""Extras of the core that are not for owners of agents."""
PURPOSES = {
    "nanobot-core[images]": "scales images before they are sent to a model",
    "nanobot-core[tokens]": "counts the tokens of a long history exactly before it is summarised",
    "nanobot-files[documents]": "reads spreadsheets, PDF, Word, PowerPoint and OpenDocument files",
    "nanobot-files[notebooks]": "edits Jupyter notebooks",
    "nanobot-litellm[vertex]": "signs in to Vertex AI",
    "nanobot-matrix[e2e]": "encrypted rooms",
    "nanobot-mochat[socket]": "messages over a socket instead of polling",
    "nanobot-shell[sandbox]": "bubblewrap, where the system has none",
    "nanobot-whatsapp[bridge]": "WhatsApp over a bridge on this computer",
}


def render_extras() -> str:
    """Return a table of the extras of all packages, and of what each installs."""
    lines = ["| extra | for | installs |", "| --- | --- | --- |"]
    for file in [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]:
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        for extra, brought in sorted(project.get("optional-dependencies", {}).items()):
            if extra not in COLLECTIONS:
                name = f"{project['name']}[{extra}]"
                names = ", ".join(f"`{each.partition(';')[0]}`" for each in brought)
                lines.append(f"| `{name}` | {PURPOSES[name]} | {names} |")
    return "\n".join(lines)
