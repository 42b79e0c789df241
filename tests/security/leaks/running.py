"""Looks for secrets in what a running gateway does, keeps and answers."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.security.leaks.canaries import PLANTED
from tests.security.leaks.probe import Probe, calls
from tests.security.leaks.webhook import say, wait
from tests.security.leaks.world import GatewayHome, Home

MCP = ("variable of an MCP server", "plain variable of an MCP server")
"""A server knows its own, and may tell; the others it must not know."""

CALLS = {
    'exec {"command": "env"}': "PATH=",
    'exec {"command": "printenv; export -p; set"}': "",
    'exec {"command": "bash -c \'tr \\\\0 \\\\n < /proc/self/environ\'"}': "",
    'exec {"command": "cat /proc/self/environ"}': "exec",
    'exec {"command": "cat /proc/$PPID/environ"}': "exec",
    'exec {"command": "cat /proc/@PID/environ"}': "refused",
    'exec {"command": "cat /proc/*/environ"}': "exec",
    'exec {"command": "cat @HOME/config.yaml @HOME/.env @HOME/model.key"}': "exec",
    'exec {"command": "cat ../config.yaml"}': "exec",
    'exec {"command": "ps auxewww"}': "exec",
    'read_file {"path": "@HOME/config.yaml"}': "read_file",
    'read_file {"path": "../config.yaml"}': "read_file",
    'read_file {"path": "@HOME/.env"}': "read_file",
    'read_file {"path": "@HOME/model.key"}': "read_file",
    'read_file {"path": "@HOME/gateway/pairing.json"}': "read_file",
    'read_file {"path": "@HOME/gateway/bus.sqlite"}': "read_file",
    'read_file {"path": "/proc/self/environ"}': "read_file",
    'read_file {"path": "/proc/@PID/environ"}': "read_file",
    'list_dir {"path": "@HOME", "recursive": true}': "list_dir",
    'glob {"pattern": "../**/*"}': "glob",
    'grep {"pattern": "key|secret|token", "path": "@HOME", "output_mode": "content"}': "grep",
    'message {"content": "look", "media": ["@HOME/config.yaml"]}': "message",
    'message {"content": "look", "media": ["../model.key"]}': "message",
    'web_search {"query": "weather"}': "web_search",
    'web_fetch {"url": "file://@HOME/config.yaml"}': "web_fetch",
    'mcp_tattler_tell {"key": "x"}': "TATTLER",
}


def _answers(method: str, path: str, **options: Any) -> Callable[[GatewayHome], str]:
    return lambda world: world.get(path, method=method, **options)


def _posted(world: GatewayHome) -> bytes:
    """What the callback gets: an answer, a failure, and the question to the owner."""
    before = len(world.services.heard)
    for text in ("say hello", 'call exec {"command": "env"}', "/status", "/plugins", "/usage"):
        assert "200" in say(world, text)
    wait(lambda: len(world.services.heard) >= before + 5)
    return b"\n".join(world.services.heard[before:])


def begin(world: GatewayHome) -> None:
    """Do what several probes look at: a turn, and a reply that is refused for good.

    The service that refuses it repeats address and headers.
    """
    world.turn("say hello")
    say(world, "say refused", chat_id="refused")
    wait(lambda: b"refused" in _rows(world.path / "gateway" / "bus.sqlite"))
    wait(lambda: "refused" in world.nanobot("deadletters", "list", "--json"))
    wait(lambda: "obedient" in world.nanobot("usage", "--json"))


def _dead(world: GatewayHome) -> bytes:
    file = world.path / "gateway" / "bus.sqlite"
    return _rows(file) + world.nanobot("deadletters", "list").encode()


def _rows(file: Path) -> bytes:
    # The gateway alone may open the file itself.
    with TemporaryDirectory() as folder:
        for path in file.parent.glob("bus.sqlite*"):
            shutil.copy(path, folder)
        return _dumped(Path(folder) / file.name)


def _dumped(file: Path) -> bytes:
    with closing(sqlite3.connect(file)) as database:
        names = [row[0] for row in database.execute("select name from sqlite_master")]
        tables = [name for name in names if not name.startswith("sqlite_")]
        rows = [repr(row) for name in tables for row in _all(database, name)]
    raw = b"".join(path.read_bytes() for path in sorted(file.parent.glob("bus.sqlite*")))
    return "\n".join(rows).encode() + raw


def _all(database: sqlite3.Connection, name: str) -> list[tuple[object, ...]]:
    try:
        return database.execute(f'select * from "{name}"').fetchall()  # noqa: S608 - its own names
    except sqlite3.OperationalError:
        return []  # an index


def _requests(world: GatewayHome) -> str:
    """What the model reads; the defaults of a server's own schema are its own words."""
    world.turn("say hello")
    return json.dumps([request.body for request in world.services.model.requests])


def _failing(model: str) -> Callable[[GatewayHome], str]:
    return lambda world: world.turn("say hello", model)


def _ripgrep(world: GatewayHome) -> bytes:
    (world.workspace / "found.txt").write_text("needle\n")
    world.turn('call grep {"pattern": "needle"}')
    return (world.folder / "rg-was-given.txt").read_bytes()


def _document(world: GatewayHome) -> bytes:
    """The process that makes text of documents, as long as it lives."""
    _write_document(world.workspace / "page.docx")
    with world.watched() as children:
        world.turn('call read_file {"path": "page.docx"}')
    return b"\n".join([*children.commands, children.of(b"nanobot_files.extract")])


def _write_document(path: Path) -> None:
    from zipfile import ZipFile

    with ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<w:document/>")


def _children(world: GatewayHome) -> bytes:
    with world.watched() as children:
        world.turn('call exec {"command": "sleep 0.3"}')
    return b"\n".join(environment for _, environment in children.environments)


def _command_lines(world: GatewayHome) -> bytes:
    with world.watched() as children:
        world.turn('call exec {"command": "sleep 0.3"}')
        world.turn('call grep {"pattern": "needle"}')
    return b"\n".join(children.commands)


def _in_other(command: str, **tools: Any) -> Callable[[GatewayHome], str]:
    """A command of the model's in a home with other rules, and no gateway."""

    def look(world: GatewayHome) -> str:
        home: Home = world.other(tools=tools)
        line = command.replace("@HOME", str(home.path))
        call = f"call exec {json.dumps({'command': line})}"
        return "exec\n" + home.nanobot("agent", "-m", call)

    return look


def _kept(*patterns: str) -> Callable[[GatewayHome], bytes]:
    return lambda world: world.written(*patterns)


def _all_but_planted(world: GatewayHome) -> bytes:
    planted = {"config.yaml", "model.key", ".env"}
    files = [path for path in world.path.rglob("*") if path.is_file() and path.name not in planted]
    return b"\n".join(bytes(path) + b"\n" + path.read_bytes() for path in files)


_BEARER = {"authorization": f"Bearer {PLANTED['secret of the gateway']}"}
_UNSAFE = {"restrict_to_workspace": False, "exec": {"sandbox": "none"}}
_GUARDED = {"restrict_to_workspace": True, "exec": {"sandbox": "none"}}
_READ_ALL = "cat /proc/self/environ /proc/$PPID/environ"

PROBES = (
    *(
        Probe(probe.name, probe.look, probe.witness, MCP if "tattler" in probe.name else ())
        for probe in calls(CALLS)
    ),
    Probe("env without a sandbox", _in_other("env", **_UNSAFE), "PATH=", is_long=True),
    Probe("environments without a sandbox", _in_other(_READ_ALL, **_UNSAFE), "exec"),
    Probe("environments, restricted without a sandbox", _in_other(_READ_ALL, **_GUARDED), "exec"),
    Probe(
        "configuration, restricted without a sandbox",
        _in_other("cat @HOME/config.yaml ../config.yaml", **_GUARDED),
        "exec",
    ),
    Probe("model service repeats the headers", _failing("groq/any"), "HTTP 400"),
    Probe("model service behind a dead proxy", _failing("deepseek/any"), "deepseek"),
    Probe("model service at an address with a password", _failing("openrouter/any"), "openrouter"),
    Probe("what the model reads", _requests, "obedient", MCP),
    Probe("what the callback gets", _posted, "The tool said"),
    Probe("dead letters", _dead, "refused"),
    Probe("program that searches", _ripgrep, "needle"),
    Probe("process that reads documents", _document, "nanobot_files.extract"),
    Probe("environments of all children", _children, "PATH", MCP),
    Probe("command lines of the gateway and its children", _command_lines, "gateway"),
    Probe("GET /health", _answers("GET", "/health"), "alive"),
    Probe("GET /health/ready", _answers("GET", "/health/ready"), "telegram"),
    Probe(
        "GET /health/ready by who knows the secret",
        _answers("GET", "/health/ready", headers=_BEARER),
        "telegram",
    ),
    Probe("GET /metrics", _answers("GET", "/metrics"), "nanobot"),
    Probe("GET a missing page", _answers("GET", "/nothing"), "404"),
    Probe("POST where GET is meant", _answers("POST", "/health"), "404"),
    Probe(
        "request of a foreign page",
        _answers("GET", "/health", headers={"origin": "http://evil.example"}),
        "403",
    ),
    Probe(
        "request for a foreign host",
        _answers("GET", "/health", headers={"host": "evil.example"}),
        "400",
    ),
    Probe("ambiguous path", _answers("GET", "/a%2f..%2fb"), "400"),
    Probe("message without a signature", _answers("POST", "/webhook", json={}), "401"),
    Probe(
        "message with a wrong signature",
        lambda world: say(world, "x", secret="whsec_" + "A" * 40),
        "401",
    ),
    Probe("message that is none", lambda world: say(world, ""), "400"),
    Probe("message that is too large", lambda world: say(world, "x" * 5_000_000), "413"),
    Probe("stderr of the gateway at DEBUG", lambda world: world.stderr, "listening"),
    Probe("log file at TRACE", _kept("logs/*"), "listening"),
    Probe("files of sessions", _kept("**/sessions/**/*"), "user", MCP),
    Probe("folder of the gateway", _kept("gateway/*"), "bus.sqlite"),
    Probe("data of plugins", _kept("plugins/**/*", "data/**/*"), "http", MCP),
    Probe("cache", _kept("cache/**/*"), "cache"),
    Probe("all that a gateway wrote", _all_but_planted, "bus.sqlite", MCP),
)
