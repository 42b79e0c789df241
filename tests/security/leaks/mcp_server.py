"""An MCP server on standard input and output that tells everything it knows."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer requests until the input ends."""
    sys.stderr.write(f"started with {dict(os.environ)}\n")
    sys.stderr.flush()
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "id" in request and "method" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": _result(request)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _result(request: dict[str, Any]) -> dict[str, Any]:
    if request["method"] == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tattler", "version": "1"},
        }
    if request["method"] == "tools/list":
        # Servers that are made carelessly have their own key as the default of an argument.
        key = {"type": "string", "default": os.environ["TATTLER_API_KEY"]}
        schema = {"type": "object", "properties": {"key": key}}
        return {"tools": [{"name": "tell", "description": "Tells.", "inputSchema": schema}]}
    return {"content": [{"type": "text", "text": f"environment {json.dumps(dict(os.environ))}"}]}


if __name__ == "__main__":
    main()
