"""A model service in a process of its own, and a home of nanobot that uses it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.child import ChildError, environment_of
from nanobot_core import Nanobot
from nanobot_core.app.logging import configure_logging

SERVER = "nanobot_core.testing.openai_server"
STOP_LIMIT_S = 5.0
ANSWER_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A running service."""

    url: str

    def requests(self) -> list[dict[str, Any]]:
        """Return all requests so far."""
        origin = self.url.removesuffix("/v1")
        with urlopen(f"{origin}/requests", timeout=ANSWER_LIMIT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


@contextmanager
def model_server(
    replies: Sequence[Mapping[str, object]] = (), *, default: Mapping[str, object] | None = None
) -> Iterator[ModelServer]:
    """Run a service for the block.

    Args:
        replies: replies in the order of requests.
        default: the reply after those.
    """
    script = {"replies": list(replies), "default": default or {"text": "Done."}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(script, file)
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", SERVER, "--script", file.name],
            env=environment_of(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                msg = f"'{SERVER}' did not start"
                raise ChildError(msg)
            yield ModelServer(url)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@contextmanager
def nanobot_home(url: str = "http://127.0.0.1:9/v1") -> Iterator[Path]:
    """Create a home whose model is at `url`, with all installed plugins enabled."""
    with tempfile.TemporaryDirectory(prefix="nanobot-bench-") as folder:
        home = Path(folder)
        config = {
            "agents": {"defaults": {"model": "bench", "provider": "custom"}},
            "providers": {"custom": {"api_base": url}},
            "plugins": {"policy": "all"},
        }
        # YAML as people have it; JSON would be parsed by another, faster parser.
        (home / "config.yaml").write_text(_as_yaml(config), "utf-8")
        (home / "workspace").mkdir()
        yield home


def open_agent(home: Path) -> Nanobot:
    """Return an agent that is not started yet, and log as the command line does."""
    bot = Nanobot.from_config(home=home)
    # Without it every line of the log goes to the standard error, which would be measured.
    configure_logging(bot.loaded, level="WARNING")
    return bot


def _as_yaml(tree: Mapping[str, object], indent: str = "") -> str:
    lines = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{_as_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}\n")
    return "".join(lines)
