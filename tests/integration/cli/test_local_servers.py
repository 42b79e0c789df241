"""``nanobot onboard`` and the model servers of this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.integration.cli.conftest import CommandLine

pytest.importorskip("nanobot_openai")

MODELS = ["tiny:1b", "big\x1b[31m:70b", "two\nlines", "big:70b"]
SERVERS = ("ollama", "vllm", "llama_cpp", "lm_studio")


class _Service(BaseHTTPRequestHandler):
    """An OpenAI-compatible server with `MODELS`."""

    kind = "application/json"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": name} for name in MODELS]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": f"{body['model']} answers"}
        self._send({"choices": [{"message": message, "finish_reason": "stop"}]})

    def log_message(self, *_: object) -> None: ...

    def _send(self, payload: object) -> None:
        data = json.dumps(payload).encode()
        self.send_response(200)
        self.send_header("content-type", self.kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Website(_Service):
    """Something else that speaks HTTP."""

    kind = "text/html"

    def do_GET(self) -> None:
        self._send("<html>welcome</html>")


@contextmanager
def _http(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def closed_port() -> int:
    with _listening() as server:
        port: int = server.getsockname()[1]
    return port


def _configure(nanobot: CommandLine, ports: dict[str, int], closed_port: int) -> None:
    sections = {
        name: {"api_base": f"http://127.0.0.1:{ports.get(name, closed_port)}/v1"}
        for name in SERVERS
    }
    nanobot.configure(json.dumps({"providers": sections}))


def test_a_server_is_offered_and_its_model_answers_at_once(
    nanobot: CommandLine, closed_port: int
) -> None:
    with _http(_Service) as port:
        _configure(nanobot, {"ollama": port}, closed_port)
        with nanobot.on_terminal("onboard") as terminal:
            terminal.expect(f"  ollama  http://127.0.0.1:{port}/v1  tiny:1b, big:70b\r\n")
            terminal.expect("github_copilot  the models")
            terminal.expect("(runs on this machine)")
            terminal.expect("Provider [ollama]: ")
            terminal.send("\r")
            terminal.expect(" 1  tiny:1b")
            terminal.expect("number [tiny:1b]: ")
            terminal.send("1\r")
            assert terminal.wait() == 0
        assert nanobot("agent", "-m", "hi").stdout == "tiny:1b answers\n"


def test_without_questions_servers_are_shown_and_none_is_chosen(
    nanobot: CommandLine, closed_port: int
) -> None:
    """What is not a model server is ignored: another service, silence, and garbage."""
    with _http(_Service) as port, _http(_Website) as website, _listening() as silent:
        others = {"lm_studio": website, "llama_cpp": silent.getsockname()[1]}
        _configure(nanobot, {"vllm": port, **others}, closed_port)
        shown = nanobot("onboard", "--yes").stdout
        assert "nanobot onboard --provider vllm --model tiny:1b" in shown
        assert not any(name in shown for name in ("lm_studio", "llama_cpp", "ollama"))
        assert "provider:" not in (nanobot.home / "config.yaml").read_text()
        assert "vllm" not in nanobot("onboard", "--yes", "--no-probe").stdout


def test_a_named_server_with_one_model_needs_no_choice(
    nanobot: CommandLine, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.MODELS", ["only"])
    with _http(_Service) as port:
        _configure(nanobot, {"ollama": port}, closed_port)
        nanobot("onboard", "--yes", "--provider", "ollama")
        assert "model: only" in (nanobot.home / "config.yaml").read_text()
