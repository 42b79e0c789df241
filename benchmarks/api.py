"""The API of nanobot-api: many streaming clients at the same time, against one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.child import environment_of, nanobot_command, program, run_child
from benchmarks.gateway import largest_mb, running
from benchmarks.measure import Row, compare, interleave, single
from benchmarks.server import model_server, nanobot_home

ROUNDS = 3
CLIENTS, REQUESTS = 100, 300
_PORT_FILE = "plugins/http/address"


def rows(scale: int) -> Iterator[Row]:
    """Measure streams through a gateway whose model answers at once. Needs Linux."""
    with model_server() as server, nanobot_home(server.url) as home:
        key = _configure(home)
        environment = environment_of(home)
        with running(nanobot_command("gateway"), environment) as process:
            url = (home / _PORT_FILE).read_text("utf-8").strip()

            def streamed(clients: int) -> Mapping[str, float]:
                command = program("many_streams", url, key, str(clients), str(REQUESTS))
                return _figures(run_child(command, environment).output)

            streamed(1)  # loads what the first request needs
            many, one = interleave(ROUNDS * scale, lambda: streamed(CLIENTS), lambda: streamed(1))
            resident_mb = largest_mb(process.pid)
    for title, unit in (("requests a second", "/s"), ("first word", "ms"), ("whole answer", "ms")):
        yield compare(
            f"{CLIENTS} streaming clients / one, {title}",
            unit,
            [figures[title] for figures in many],
            [figures[title] for figures in one],
        )
    yield single(f"{CLIENTS} streaming clients, resident", "MB", [resident_mb])


def _figures(output: str) -> dict[str, float]:
    rate, first_ms, whole_ms = map(float, output.split())
    return {"requests a second": rate, "first word": first_ms, "whole answer": whole_ms}


def _configure(home: Path) -> str:
    """Let the system choose a port, and return a key."""
    file = home / "config.yaml"
    config: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    config["gateway"] = {"port": 0, "http": {"requests_per_minute": 1_000_000}}
    file.write_text(yaml.safe_dump(config), "utf-8")
    command = nanobot_command("api", "keys", "add", "bench", "--requests-per-minute", "0")
    done = subprocess.run(
        command, env=environment_of(home), capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
