"""A gateway process with the API, between programs and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ScriptedCall, ScriptedModel

LIMIT_S = 30.0
"""On a busy machine, what takes a second may take ten."""
USAGE = {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100}
REPLIES = {
    "look": Reply(
        text="Let me look.", calls=(ScriptedCall(name="list_dir", arguments='{"path": "."}'),)
    ),
    "weather": Reply(calls=(ScriptedCall(name="get_weather", arguments='{"city": "Oslo"}'),)),
    "think": Reply(text="Forty-two.", reasoning="Let me count."),
    "fail": Reply(status=400, body=b'{"error": {"message": "no such thing"}}'),
    "cut": Reply(text="Half of", finish_reason="length"),
    "stall": Reply(text="word " * 100, stop_after_bytes=700, stop="stall"),
    "silent": Reply(text="word", stop_after_bytes=0, stop="stall"),
    "hundred": Reply(text="A hundred tokens.", usage={**USAGE}),
}


class ModelThread:
    """A model service in a thread of its own, so that tests can block.

    Attributes:
        url: its base URL.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = OpenAIServer(default=ScriptedModel(REPLIES), models=["m", "other"])
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.__aenter__(), self._loop).result(LIMIT_S)
        self.url: str = self._server.url

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.__aexit__(), self._loop).result(LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    @property
    def requests(self) -> list[RecordedRequest]:
        """What came in so far."""
        return list(self._server.requests)

    def asked(self, word: str) -> RecordedRequest:
        """Return the newest request whose last message contains `word`, once there is one."""
        found: list[RecordedRequest] = []

        def has_come() -> bool:
            found[:] = [
                one for one in self.requests if word in json.dumps(one.body["messages"][-1])
            ]
            return bool(found)

        until(has_come)
        return found[-1]


def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds` returns True."""
    end_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.02)


class Gateway:
    """``nanobot gateway`` with the API.

    Attributes:
        home: its folder.
        model: the model service.
        url: base URL of the API.
        key: of the program ``web``, which may use every model.
    """

    def __init__(self, home: Path, model: ModelThread, **settings: object) -> None:
        self.home: Path = home
        self.model: ModelThread = model
        self.url: str = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._write_config(settings)
        self.key: str = self.add_key("web", "--model", "*", "--requests-per-minute", "0")

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        """Wait until `holds` returns True."""
        until(holds)

    @property
    def is_running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the processes."""
        folders = [str(Path(sys.executable).parent), os.defpath]
        return {
            "HOME": str(self.home.parent),
            "NANOBOT_HOME": str(self.home),
            "PATH": os.pathsep.join(folders),
        }

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        address = self.home / "plugins" / "http" / "address"
        address.unlink(missing_ok=True)
        output = self.home / "output"
        with output.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nanobot_core", "gateway"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: address.exists() and bool(address.read_text("utf-8")))
        self.url = f"{address.read_text('utf-8').strip()}/v1"
        until(lambda: b"gateway ready" in output.read_bytes())

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)

    def stop(self) -> None:
        """End the process as the system does."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(LIMIT_S)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``nanobot api keys``."""
        return subprocess.run(
            [sys.executable, "-m", "nanobot_core", "api", "keys", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def add_key(self, name: str, *options: str) -> str:
        """Add a key and return it."""
        done = self.command("add", name, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def client(self, key: str | None = None, **headers: str) -> httpx.Client:
        """Return a client with a key."""
        headers = {"authorization": f"Bearer {key or self.key}", **headers}
        return httpx.Client(base_url=self.url, headers=headers, timeout=LIMIT_S, trust_env=False)

    def chat(
        self, text: str, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """Send one message to the agent."""
        body = {"model": "nanobot", "messages": [{"role": "user", "content": text}], **fields}
        with self.client() as client:
            return client.post("/chat/completions", json=body, headers=headers)

    def said(self, text: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> str:
        """Send one message to the agent, and return the answer."""
        response = self.chat(text, headers=headers, **fields)
        assert response.status_code == 200, response.text
        found: str = response.json()["choices"][0]["message"]["content"]
        return found

    def sessions(self) -> set[str]:
        """Return the names of the files of all sessions; earlier tests' may still be deleted."""
        return {file.name for file in (self.home / "workspace/sessions").glob("*.jsonl")}

    def _write_config(self, settings: Mapping[str, object]) -> None:
        (self.home / "workspace").mkdir(parents=True)
        content: dict[str, Any] = {
            "agents": {
                "defaults": {
                    "provider": "custom",
                    "model": "m",
                    "workspace": str(self.home / "workspace"),
                }
            },
            "plugins": {"policy": "listed", "enabled": ["api", "files", "http", "openai"]},
            "providers": {"custom": {"api_base": self.model.url}},
            "gateway": {"port": 0, "grace_s": 1, "api": dict(settings)},
        }
        file = self.home / "config.yaml"
        file.write_text(yaml.safe_dump(content), "utf-8")
        file.chmod(0o600)


@pytest.fixture(scope="session")
def model() -> Iterator[ModelThread]:
    """Runs the model service."""
    for plugin in ("nanobot_files", "nanobot_http", "nanobot_openai"):
        pytest.importorskip(plugin)
    model = ModelThread()
    model.start()
    yield model
    model.stop()


@pytest.fixture(scope="session")
def gateway(model: ModelThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Runs a gateway for all tests that do not end it."""
    gateway = Gateway(tmp_path_factory.mktemp("gateway") / "home", model)
    gateway.start()
    yield gateway
    gateway.stop()
    assert "Traceback" not in (gateway.home / "output").read_text("utf-8")


@pytest.fixture(scope="session")
def fragile_home(model: ModelThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Makes the gateway that `fragile` runs."""
    settings = {"keep_responses_days": 1, "max_running": 1}
    gateway = Gateway(tmp_path_factory.mktemp("fragile") / "home", model, **settings)
    yield gateway
    gateway.kill()


@pytest.fixture
def fragile(fragile_home: Gateway) -> Gateway:
    """A running gateway that tests may end; it answers one request at a time."""
    if not fragile_home.is_running:
        fragile_home.start()
    return fragile_home
