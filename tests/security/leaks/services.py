"""What the agent talks to in these tests: a model that obeys, and a service that repeats."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeVar

from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ScriptedCall

T = TypeVar("T")
LIMIT_S = 50.0


def obey(request: RecordedRequest) -> Reply:
    """Do what the last line of the user's message says: ``call TOOL {JSON}``, or ``say WORDS``.

    What tools have answered is the answer then.
    """
    messages = request.body["messages"]
    results: list[str] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.append(_text(message))
    if results:
        return Reply(text="The tool said: " + " | ".join(reversed(results)))
    verb, _, rest = (
        _text(messages[-1]).strip().rpartition("\n")[2].removeprefix("> ").partition(" ")
    )
    if verb != "call":
        return Reply(text=rest or "Nothing to do.")
    name, _, arguments = rest.partition(" ")
    return Reply(calls=(ScriptedCall(name=name, arguments=arguments or "{}"),))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


class Background:
    """A loop in a thread of its own, for servers that outlive one test.

    Attributes:
        model: the model service.
        echo: the address of a service that refuses every request and repeats all that came.
        heard: the bodies that came to the address ``/hook`` of that service.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.model: OpenAIServer = OpenAIServer(default=obey)
        self.heard: list[bytes] = []
        self._echo = ThreadingHTTPServer(("127.0.0.1", 0), _echo_handler(self.heard.append))
        self.echo: str = f"http://127.0.0.1:{self._echo.server_port}"
        self._threads = [
            threading.Thread(target=self.loop.run_forever),
            threading.Thread(target=self._echo.serve_forever),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.run(self.model.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.model.__aexit__())
        self._echo.shutdown()
        self._echo.server_close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        for thread in self._threads:
            thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)


def _echo_handler(hear: Callable[[bytes], None]) -> type[BaseHTTPRequestHandler]:
    class Echo(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.startswith("/hook") and b'"refused"' not in body:
                hear(body)
                self._answer(200, {"status": "ok"})
                return
            # The telling headers first: what repeats this may cut it.
            told = [value for name, value in self.headers.items() if name.lower() not in _DULL]
            message = " ".join(["you sent", *told, self.path])
            self._answer(
                401 if self.path.startswith("/bot") else 400,
                {
                    "ok": False,
                    "error_code": 400,
                    "description": message,
                    "message": message,
                    "error": {"message": message, "code": told[0] if told else "none"},
                },
            )

        do_POST = do_GET  # noqa: N815 - its name there

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Write nothing."""

    return Echo


_DULL = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host"),
        "user-agent",
    )
)
