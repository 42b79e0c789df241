"""The API of nanobot-api: many streaming clients, against one, and against a bare proxy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.child import ChildError, environment_of, nanobot_command, program, run_child
from benchmarks.gateway import POLL_S, largest_mb, running
from benchmarks.measure import Goal, Row, compare, interleave, single
from benchmarks.server import model_server, nanobot_home

ROUNDS = 1
CLIENTS, REQUESTS = 100, 100
_ADDRESS_FILE = "plugins/http/address"
_LISTEN_LIMIT_S = 30.0


def rows(scale: int) -> Iterator[Row]:
    """Measure streams through a gateway whose model answers at once. Needs Linux."""
    with model_server() as server, nanobot_home(server.url) as home:
        key = _configure(home)
        environment = environment_of(home)
        proxy_file = home / "proxy"
        with (
            running(nanobot_command("gateway"), environment) as process,
            running(program("serve_proxy", server.url, str(proxy_file)), environment),
        ):
            url, proxy = _address(home), proxy_file.read_text("utf-8")

            def streamed(clients: int, url: str = url) -> Mapping[str, float]:
                command = program("many_streams", url, key, str(clients), str(REQUESTS))
                return _figures(run_child(command, environment).output)

            streamed(1)  # loads what the first request needs
            many, one, bare = interleave(
                ROUNDS * scale,
                lambda: streamed(CLIENTS),
                lambda: streamed(1),
                lambda: streamed(CLIENTS, proxy),
            )
            resident_mb = largest_mb(process.pid)
    for title, unit in (("requests a second", "/s"), ("first word", "ms"), ("whole answer", "ms")):
        yield compare(
            f"{CLIENTS} streaming clients / one, {title}",
            unit,
            [figures[title] for figures in many],
            [figures[title] for figures in one],
        )
    yield compare(
        f"{CLIENTS} streaming clients / through a bare proxy, requests a second",
        "/s",
        [figures["requests a second"] for figures in many],
        [figures["requests a second"] for figures in bare],
    )
    yield single(f"{CLIENTS} streaming clients, resident", "MB", [resident_mb], Goal(120, "value"))


def _address(home: Path) -> str:
    """Return the base URL of the server, which may listen only after the gateway is ready."""
    file, end_s = home / _ADDRESS_FILE, time.monotonic() + _LISTEN_LIMIT_S
    while not (file.exists() and file.read_text("utf-8")):
        if time.monotonic() > end_s:
            msg = f"the HTTP server did not listen within {_LISTEN_LIMIT_S:g} seconds"
            raise ChildError(msg)
        time.sleep(POLL_S)
    return file.read_text("utf-8").strip()


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
