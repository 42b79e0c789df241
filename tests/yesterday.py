"""Wheels of two revisions together: what `nox -s yesterday` builds, compares and runs.

Each command runs in the environment with the wheels, not in the repository, and uses only what its
users have: programs, HTTP and files.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LIMIT_S = 60.0
SAID = "yesterday and today"
TURN = f'write_file {{"path": "a.txt", "content": "{SAID}"}} then read_file {{"path": "a.txt"}}'


def build(root: Path, dist: Path) -> None:
    """Build the wheels of the core and of all plugins below `root` into `dist`."""
    from hatchling.builders.wheel import WheelBuilder

    for project in sorted({root, *(each.parent for each in root.glob("plugins/*/pyproject.toml"))}):
        list(WheelBuilder(str(project)).build(directory=str(dist)))


def compare(core: Path, plugins: Sequence[Path]) -> None:
    """Compare wheels of plugins with a wheel of the core, as their authors do."""
    failed = []
    for plugin in plugins:
        done = run("plugins", "compat", str(plugin), "--against", str(core), check=False)
        if done.returncode != 0:
            failed.append(done.stdout + done.stderr)
    expect(not failed, f"{len(failed)} plugins do not fit {core.name}\n" + "\n".join(failed))
    sys.stdout.write(f"{len(plugins)} plugins fit {core.name}\n")


def work() -> None:
    """Let all plugins that are installed here work: commands, a turn, and a channel's message."""
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        os.environ |= {"HOME": folder, "NANOBOT_HOME": str(Path(folder, "home"))}
        os.chdir(folder)
        run("onboard", "--yes")
        ids = check_plugins("list", {"enabled"})
        for plugin_id in ids:
            check_code(plugin_id)
        said = run("agent", "-m", TURN).stdout
        expect(SAID in said, f"a turn with tools answered {said!r}")
        with Peer() as peer, gateway(peer.settings):
            peer.write(TURN)
            replied = peer.reply()
            expect(SAID in replied, f"a message to the gateway was answered with {replied!r}")
            check_plugins("status", {"enabled", "active"})
        sys.stdout.write(f"these plugins work: {', '.join(ids)}\n")


def check_code(plugin_id: str) -> None:
    """Check the code of a plugin; its manifest can lack fields that only this core knows."""
    done = run("plugins", "check", plugin_id, check=False)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line]
    others = [line for line in found if not line.startswith("manifest: ")]
    expect(done.returncode == 0 or (bool(found) and not others), "\n".join(found))


def check_plugins(command: str, states: set[str]) -> list[str]:
    """Return the ids of all plugins, which must be in one of these states."""
    data = json.loads(run("plugins", command, "--json").stdout)
    found = data if isinstance(data, list) else data["plugins"]
    out = [f"{each['id']}: {each['state']}" for each in found if each["state"] not in states]
    expect(not out, f"plugins {command}: {', '.join(out)}")
    return [each["id"] for each in found]


@contextmanager
def gateway(settings: dict[str, object]) -> Iterator[None]:
    """Run a gateway, which must start and stop."""
    Path(os.environ["NANOBOT_HOME"], "config.json").write_text(json.dumps(settings))
    Path(os.environ["NANOBOT_HOME"], "config.yaml").unlink()
    with (
        Path("gateway.log").open("wb") as log,
        subprocess.Popen([*NANOBOT, "gateway"], stdout=log, stderr=log) as process,
    ):
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while run("gateway", "status", check=False).returncode != 0:
                expect(process.poll() is None, f"no gateway: {Path('gateway.log').read_text()}")
                expect(time.monotonic() < deadline_s, "the gateway does not start")
            yield
            run("gateway", "stop")
            expect(process.wait(LIMIT_S) == 0, "the gateway did not end normally")
        finally:
            if process.poll() is None:
                process.kill()


class Peer:
    """The program at the other end of the webhook channel."""

    def __init__(self) -> None:
        self._replies = queue.SimpleQueue[str]()
        self._key = secrets.token_bytes(32)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        with ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) as free:
            self._gateway_port = free.server_port

    def __enter__(self) -> Peer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, object]:
        """The configuration of a gateway that talks to it."""
        channel = {
            "enabled": True,
            "secret": "whsec_" + base64.b64encode(self._key).decode(),
            "callback_url": f"http://127.0.0.1:{self._server.server_port}/replies",
            "allow_from": ["someone"],
        }
        return {
            "gateway": {"port": self._gateway_port},
            "channels": {"webhook": channel},
            "owner": ["webhook:someone"],
        }

    def write(self, text: str) -> None:
        """Send a signed message."""
        data = {"chat_id": "kitchen", "sender_id": "someone", "content": text}
        body = json.dumps({"type": "message.created", "data": data}).encode()
        name, now = f"msg_{secrets.token_hex(8)}", str(int(time.time()))
        signed = hmac.digest(self._key, f"{name}.{now}.".encode() + body, hashlib.sha256)
        headers = {
            "webhook-id": name,
            "webhook-timestamp": now,
            "webhook-signature": "v1," + base64.b64encode(signed).decode(),
        }
        url = f"http://127.0.0.1:{self._gateway_port}/webhook"
        request = urllib.request.Request(url, body, headers)
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            try:
                # It is an address on loopback.
                with urllib.request.urlopen(request, timeout=LIMIT_S):  # noqa: S310
                    return  # other answers than 200 are errors
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionRefusedError):
                    raise
                # A gateway is ready before its services are.
                expect(time.monotonic() < deadline_s, "the gateway does not listen")
                time.sleep(0.1)

    def reply(self) -> str:
        """Return the next answer."""
        while True:
            data = json.loads(self._replies.get(timeout=LIMIT_S))["data"]
            if data["kind"] == "final":
                return str(data["content"])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        replies = self._replies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                replies.put(self.rfile.read(int(self.headers["content-length"])).decode())
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                pass

        return Handler


NANOBOT = (sys.executable, "-P", "-m", "nanobot_core")


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of nanobot, which must succeed unless `check` is false."""
    done = subprocess.run(
        [*NANOBOT, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if check:
        words = " ".join(arguments)
        expect(done.returncode == 0, f"nanobot {words}: {done.stdout}{done.stderr}")
    return done


def expect(condition: bool, message: str) -> None:
    """End the program with a message unless a condition is true."""
    if not condition:
        raise SystemExit(f"error: {message}")


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    build_parser = commands.add_parser("build")
    build_parser.set_defaults(command=build)
    build_parser.add_argument("root", type=Path)
    build_parser.add_argument("dist", type=Path)
    compare_parser = commands.add_parser("compare")
    compare_parser.set_defaults(command=compare)
    compare_parser.add_argument("core", type=Path)
    compare_parser.add_argument("plugins", type=Path, nargs="+")
    commands.add_parser("work").set_defaults(command=work)
    given = vars(parser.parse_args())
    given.pop("command")(**given)


if __name__ == "__main__":
    main()
