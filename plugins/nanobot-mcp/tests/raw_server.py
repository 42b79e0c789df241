"""A server on standard input and output that misbehaves on request.

Written without the SDK, which would not let it. The first argument is how it starts; its tools are
how it goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HINTS: dict[str, dict[str, bool]] = {"read_die": {"readOnlyHint": True}}
TOOLS = {
    "echo": {"text": {"type": "string"}},
    "die": {"note": {"type": "string"}},
    "read_die": {"note": {"type": "string"}},
    "hang": {},
    "big": {"size": {"type": "integer"}},
    "nothing": {},
    "rubbish": {},
    "refuse": {"code": {"type": "integer"}},
    "children": {},
    "environment": {},
    "pid": {},
    "noise": {},
    "change": {},
}
added: list[str] = []


def main(mode: str) -> None:
    if mode == "dies":
        sys.stderr.write("cannot start: the moon is full\n")
        sys.exit(3)
    if mode == "floods":
        while True:
            sys.stdout.write("still starting\n")
    if mode == "banner":
        sys.stdout.write("Welcome to the server!\n\n{not json}\n")
    if mode == "deaf":
        while sys.stdin.readline():
            pass
        return
    if mode == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "late":
        while not Path(sys.argv[2]).exists():
            time.sleep(0.02)
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            answer(message)
    if mode == "stubborn":
        time.sleep(3_600)


def answer(message: dict[str, Any]) -> None:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        send(
            message,
            {
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": "raw", "version": "1"},
            },
        )
    elif method == "tools/list":
        send(message, {"tools": tools()})
    elif method == "tools/call":
        call(message, params["name"], params.get("arguments", {}))
    else:
        error = {"code": -32601, "message": f"no method {method}"}
        write({"jsonrpc": "2.0", "id": message["id"], "error": error})


def tools() -> list[dict[str, Any]]:
    if len(sys.argv) > 2 and sys.argv[1] == "tools":
        found: list[dict[str, Any]] = json.loads(Path(sys.argv[2]).read_text("utf-8"))
        return found
    return [
        {
            "name": name,
            "description": f"Does {name}.",
            "inputSchema": {"type": "object", "properties": properties},
            **({"annotations": HINTS[name]} if name in HINTS else {}),
        }
        for name, properties in {**TOOLS, **{name: {} for name in added}}.items()
    ]


def call(message: dict[str, Any], name: str, given: dict[str, Any]) -> None:
    match name:
        case "echo":
            text(message, given["text"])
        case "die" | "read_die":
            note = Path(given["note"])
            note.write_text((note.read_text() if note.exists() else "") + "called\n")
            if name == "read_die" and note.read_text().count("called") == 2:
                text(message, "second time")
            else:
                os._exit(7)
        case "hang":
            pass
        case "big":
            big(message, given["size"])
        case "nothing":
            send(message, {"content": []})
        case "rubbish":
            send(message, {"content": [{"type": "smell", "strength": 9}]})
        case "refuse":
            error = {"code": given["code"], "message": "not like this"}
            write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case "children":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            text(message, str(child.pid))
        case "environment":
            text(message, json.dumps(dict(os.environ)))
        case "pid":
            text(message, str(os.getpid()))
        case "noise":
            sys.stdout.write("a print that was forgotten\n" * 20)
            text(message, "done")
        case "change":
            added.append("fresh")
            write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            text(message, "changed")
        case "fresh":
            text(message, "fresh answer")
        case _:
            text(message, f"called {name} with {json.dumps(given, sort_keys=True)}")


def big(message: dict[str, Any], size: int) -> None:
    out = sys.stdout.buffer
    out.write(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % message["id"]
    )
    block = b"x" * 1_000_000
    for _ in range(size // len(block)):
        out.write(block)
    out.write(b"x" * (size % len(block)) + b'"}]}}\n')
    out.flush()


def text(message: dict[str, Any], words: str) -> None:
    send(message, {"content": [{"type": "text", "text": words}]})


def send(message: dict[str, Any], result: dict[str, Any]) -> None:
    write({"jsonrpc": "2.0", "id": message["id"], "result": result})


def write(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "plain")
