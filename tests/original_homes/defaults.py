"""Collects the values that releases of nanobot-ai write into a new configuration.

    python tests/original_homes/defaults.py VENV… > nanobot_core/moving/defaults.json

Each argument is an environment with one release of nanobot-ai.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nanobot_core.config.tree import fold, render_path, walk

EMPTY: tuple[object, ...] = (None, "", [], {})


def main(venvs: list[str]) -> None:
    """Print key path, all of its words folded, to the values of all releases."""
    found: dict[str, list[object]] = {}
    for venv in venvs:
        with TemporaryDirectory() as home:
            program = Path(venv, "bin", "nanobot").absolute()
            env = {"HOME": home, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
            subprocess.run(
                [program, "onboard"], env=env, input="n\n", text=True, check=True, stdout=sys.stderr
            )
            config = json.loads(Path(home, ".nanobot", "config.json").read_text("utf-8"))
        for path, value in walk(config):
            if not isinstance(value, dict) and value not in EMPTY:
                values = found.setdefault(fold(render_path(path)), [])
                if "[" not in render_path(path) and value not in values:
                    values.append(value)
    lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found) if found[key]]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
