"""Wheels of two revisions: what `nox -s yesterday` and `nox -s upgrade` build, compare and run.

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
SESSION = "cli:upgrade"
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
        with Peer() as peer:
            configure(peer.settings)
            with gateway():
                peer.write(TURN)
                replied = peer.reply()
                expect(SAID in replied, f"a message to the gateway was answered with {replied!r}")
                check_plugins("status", {"enabled", "active"})
        sys.stdout.write(f"these plugins work: {', '.join(ids)}\n")


KEPT = (
    ("sessions", "list"),
    ("sessions", "show", SESSION),
    ("cron", "list"),
    ("memory", "show"),
    ("skills", "list"),
    ("pairing", "list"),
    ("usage", "--days", "30", "--by", "session"),
    ("config", "get", "channels"),
)
"""Commands with the same answer before and after an upgrade."""


def fill(home: Path) -> None:
    """Make a home with conversations, jobs, memory and skills, and kill its gateway at work."""
    enter(home)
    run("onboard", "--yes")
    with Peer() as peer:
        configure(peer.settings)
        peer.write_to(home / "peer.json")
        run("agent", "-m", TURN, "-s", SESSION)
        run("memory", "remember", "The dog is called Bello.")
        run("cron", "add", "Say hello", "--cron", "0 7 1 1 *", "--to", "webhook:kitchen")
        run("skills", "new", "laundry")
        with gateway() as process:
            peer.write(TURN)
            expect(SAID in peer.reply(), "the first message was not answered")
            peer.busy = True
            peer.write("list_dir {}")
            expect(peer.refused.wait(LIMIT_S), "no answer was sent")
            # Its outcome is unknown after the end of the gateway, and the second one waits for it.
            peer.write('exec {"command": "touch began; sleep 100"}')
            peer.write(TURN)
            wait_for(home / "workspace" / "began")
            process.kill()
            process.wait(LIMIT_S)
    (home / "kept.json").write_text(json.dumps(kept()))


def go_on(home: Path) -> None:
    """Use a home that another release has filled; nothing in it may be lost."""
    enter(home)
    for each in plugin_states("list"):
        if each["state"] != "enabled":
            sys.stdout.write(f"{each['id']} is {each['state']}; it is enabled now\n")
            run("plugins", "enable", each["id"])
    before, after = json.loads((home / "kept.json").read_text()), kept()
    for words, text in before.items():
        expect(after[words] == text, f"nanobot {words}:\n{text}\n{after[words]}")
    run("config", "check")
    with Peer(home / "peer.json") as peer, gateway():
        answers = [peer.reply() for _ in range(3)]
        expect("list_dir" in answers[0], f"{answers}")
        expect("interrupted" in answers[1], f"{answers}")
        expect(SAID in answers[2], f"{answers}")
        peer.write(TURN)
        expect(SAID in peer.reply(), "a message after the upgrade was not answered")
    run("agent", "-m", TURN, "-s", SESSION)
    shown = run("sessions", "show", SESSION, "--json").stdout
    expect(shown.count(SAID) > before[f"sessions show {SESSION}"].count(SAID), shown)
    sys.stdout.write(f"the home goes on: {', '.join(before)}\n")


def enter(home: Path) -> None:
    """Let all commands use this home."""
    home.mkdir(exist_ok=True)
    os.environ |= {"HOME": str(home), "NANOBOT_HOME": str(home)}
    os.chdir(home)


def kept() -> dict[str, str]:
    """Return what the commands print that do not change anything."""
    return {" ".join(each): run(*each, "--json").stdout for each in KEPT}


def wait_for(file: Path) -> None:
    """Wait until a file exists."""
    deadline_s = time.monotonic() + LIMIT_S
    while not file.exists():
        expect(time.monotonic() < deadline_s, f"there is no {file.name}")
        time.sleep(0.05)


def check_code(plugin_id: str) -> None:
    """Check the code of a plugin; its manifest can lack fields that only this core knows."""
    done = run("plugins", "check", plugin_id, check=False)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line]
    others = [line for line in found if not line.startswith("manifest: ")]
    expect(done.returncode == 0 or (bool(found) and not others), "\n".join(found))


def plugin_states(command: str) -> list[dict[str, str]]:
    """Return what a command says about each plugin."""
    data = json.loads(run("plugins", command, "--json").stdout)
    found: list[dict[str, str]] = data if isinstance(data, list) else data["plugins"]
    return found


def check_plugins(command: str, states: set[str]) -> list[str]:
    """Return the ids of all plugins, which must be in one of these states."""
    found = plugin_states(command)
    out = [f"{each['id']}: {each['state']}" for each in found if each["state"] not in states]
    expect(not out, f"plugins {command}: {', '.join(out)}")
    return [each["id"] for each in found]


def configure(settings: dict[str, object]) -> None:
    """Replace the configuration."""
    Path(os.environ["NANOBOT_HOME"], "config.json").write_text(json.dumps(settings))
    Path(os.environ["NANOBOT_HOME"], "config.yaml").unlink()


@contextmanager
def gateway() -> Iterator[subprocess.Popen[bytes]]:
    """Run a gateway, which must start, and stop if it is still there."""
    with (
        Path("gateway.log").open("wb") as log,
        subprocess.Popen([*NANOBOT, "gateway"], stdout=log, stderr=log) as process,
    ):
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while run("gateway", "status", check=False).returncode != 0:
                expect(process.poll() is None, f"no gateway: {Path('gateway.log').read_text()}")
                expect(time.monotonic() < deadline_s, "the gateway does not start")
            yield process
            if process.poll() is None:
                run("gateway", "stop")
                expect(process.wait(LIMIT_S) == 0, "the gateway did not end normally")
        finally:
            if process.poll() is None:
                process.kill()


class Peer:
    """The program at the other end of the webhook channel."""

    def __init__(self, file: Path | None = None) -> None:
        """Make one, or the one again that has written this file."""
        known = json.loads(file.read_text()) if file else {}
        self.busy = False
        self.refused = threading.Event()
        self._seen = set[str]()
        self._replies = queue.SimpleQueue[str]()
        self._key = bytes.fromhex(known["key"]) if known else secrets.token_bytes(32)
        self._server = ThreadingHTTPServer(("127.0.0.1", known.get("port", 0)), self._handler())
        self._gateway_port = known.get("gateway_port") or self._free_port()

    def write_to(self, file: Path) -> None:
        """Write what makes this one again."""
        known = {"key": self._key.hex(), "port": self._server.server_port}
        file.write_text(json.dumps({**known, "gateway_port": self._gateway_port}))

    def _free_port(self) -> int:
        with ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) as free:
            return free.server_port

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
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                if peer.busy:
                    peer.refused.set()
                elif self.headers["webhook-id"] not in peer._seen:
                    peer._seen.add(self.headers["webhook-id"])
                    peer._replies.put(body)
                self.send_response(503 if peer.busy else 200)
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
    for command in (fill, go_on):
        home_parser = commands.add_parser(command.__name__)
        home_parser.set_defaults(command=command)
        home_parser.add_argument("home", type=Path)
    given = vars(parser.parse_args())
    given.pop("command")(**given)


if __name__ == "__main__":
    main()
