"""Compares nanobot with nanobot-ai, in a virtual environment that takes minutes to install."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.child import child_rows, environment_of, nanobot_command
from benchmarks.measure import Row, compare, interleave
from benchmarks.one_shot import Shot, shoot, to_request_row
from benchmarks.server import model_server, nanobot_home

PEER = "nanobot-ai==0.3.5"
FOLDER = Path(tempfile.gettempdir()) / "nanobot-bench-peer"
INSTALL_LIMIT_S = 1_200
ROUNDS = 3


def rows(scale: int) -> Iterator[Row]:
    """Compare both; the peer is the floor."""
    peer = str(_installed())
    with model_server() as server, nanobot_home(server.url) as home:
        _configure_peer(home, server.url)
        environment = {**environment_of(home), "HOME": str(home)}
        for arguments in (["--version"], ["--help"], ["agent", "-m", "hello"]):
            ours, theirs = interleave(
                ROUNDS * scale,
                partial(shoot, nanobot_command(*arguments), environment, server),
                partial(shoot, [peer, *arguments], environment, server),
            )
            yield from _rows(" ".join(arguments[:2]), ours, theirs)


def _rows(title: str, ours: list[Shot], theirs: list[Shot]) -> Iterator[Row]:
    yield from child_rows(
        f"{title} / nanobot-ai", [shot.child for shot in ours], [shot.child for shot in theirs]
    )
    yield compare(
        f"{title} / nanobot-ai, resident",
        "MB",
        [shot.child.rss_mb for shot in ours],
        [shot.child.rss_mb for shot in theirs],
    )
    if ours[0].to_request_ms is not None:
        yield to_request_row(f"{title} / nanobot-ai", ours, theirs)


def _installed() -> Path:
    """Return the peer's command, installed on the first call."""
    command = FOLDER / "bin" / "nanobot"
    if not command.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True, timeout=60)
        subprocess.run(
            [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", PEER],
            check=True,
            timeout=INSTALL_LIMIT_S,
        )
    return command


def _configure_peer(home: Path, url: str) -> None:
    config = {
        "agents": {"defaults": {"model": "bench", "provider": "custom"}},
        "providers": {"custom": {"apiKey": "none", "apiBase": url}},
    }
    folder = home / ".nanobot"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
