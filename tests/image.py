"""The image of `docs/operations.md`, built and run: what `nox -s image` runs.

It builds the Containerfile of the page from the wheels in a folder, and starts the
image as the page does: a read-only root, no capabilities, an account without a name.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 120.0
TAG = "localhost/nanobot-checked"
CONFIG = """\
gateway: {port: 0}
plugins:
  install: [nanobot-offline, nanobot-files, nanobot-http]
"""
PIP = """\
[global]
no-index = true
find-links = /wheels
"""
TURN = 'write_file {"path": "a.txt", "content": "written in a container"}'


def main() -> None:
    """Build the image from a folder of wheels, run it, and remove it."""
    engine, wheels = sys.argv[1], Path(sys.argv[2]).absolute()
    dockerfile, build, start = read_page()
    with tempfile.TemporaryDirectory(prefix="nanobot-") as temporary:
        folder = Path(temporary)
        (folder / "Containerfile").write_text(dockerfile, "utf-8")
        (folder / "config.yaml").write_text(CONFIG, "utf-8")
        (folder / "secrets.env").touch()
        (folder / "pip.conf").write_text(PIP, "utf-8")
        lock(folder)
        # pip in the image takes everything from the wheels, and so what the lock names.
        run(
            engine, *command(build), "--tag", TAG, "--file", "Containerfile",
            "--volume", f"{wheels}:/wheels:ro",
            "--volume", f"{folder / 'pip.conf'}:/etc/pip.conf:ro", cwd=folder,
        )  # fmt: skip
        try:
            with container(engine, command(start), folder) as name:
                check(engine, name)
        finally:
            run(engine, "rmi", "--force", TAG)


def read_page() -> tuple[str, str, str]:
    """Return the Containerfile of the page, and its commands to build and to run it."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (dockerfile,) = re.findall(r"^```dockerfile\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (build,) = re.findall(r"^podman (build .*)$", page, re.MULTILINE)
    (start,) = re.findall(r"^podman (run .*)$", page, re.MULTILINE)
    return dockerfile, build, start


def command(line: str) -> list[str]:
    """Return the words of a command of the page, without the names that differ here."""
    words = shlex.split(line)
    for option in ("--tag", "--volume"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    return words if words[-1] == "." else words[:-1]


def lock(folder: Path) -> None:
    """Write `nanobot.lock` for what is installed here, beside the configuration."""
    python = (sys.executable, "-P", "-m", "nanobot_core")
    run(*python, "--config", str(folder / "config.yaml"), "plugins", "lock", cwd=folder)
    found = (folder / "nanobot.lock").read_text("utf-8")
    expect("nanobot-offline" in found, f"the lock lacks a plugin: {found}")


@contextmanager
def container(engine: str, words: list[str], folder: Path) -> Iterator[str]:
    """Run the image in the background, with a volume of its own."""
    name = f"nanobot-{folder.name.removeprefix('nanobot-')}"
    run(
        engine, *words, "--detach", "--network", "none", "--name", name,
        "--volume", f"{name}:/data", TAG, cwd=folder,
    )  # fmt: skip
    try:
        yield name
    finally:
        run(engine, "rm", "--force", "--volumes", name)
        run(engine, "volume", "rm", "--force", name)


def check(engine: str, name: str) -> None:
    """Let the gateway in a container work, and stop it."""
    inside = (engine, "exec", name)
    deadline_s = time.monotonic() + LIMIT_S
    while run(*inside, "nanobot", "gateway", "status", code=None).returncode != 0:
        log = run(engine, "logs", name).stdout
        expect(time.monotonic() < deadline_s, f"the gateway does not start: {log}")
        time.sleep(0.5)
    expect(run(*inside, "id", "-u").stdout.strip() == "1000", "it does not run as 1000")
    capabilities = run(*inside, "grep", "CapEff", "/proc/self/status").stdout.split()[1]
    expect(int(capabilities, 16) == 0, f"it has capabilities: {capabilities}")
    for path in ("/opt/nanobot/file", "/etc/nanobot/file", "/home/file"):
        done = run(*inside, "touch", path, code=None)
        expect("Read-only" in done.stdout, f"{path} can be written: {done.stdout}")
    said = run(*inside, "nanobot", "agent", "-m", TURN).stdout
    expect("a.txt" in said, f"a turn answered {said!r}")
    kept = run(*inside, "cat", "/data/workspace/a.txt").stdout
    expect("written in a container" in kept, f"the turn wrote {kept!r}")
    run(*inside, "nanobot", "doctor", "--json", code=None)
    refused = run(*inside, "nanobot", "plugins", "add", "nanobot-web", "--yes", code=1).stdout
    expect("Dockerfile" in refused, f"a plugin in a read-only image: {refused}")
    run(engine, "stop", "--time", "60", name)
    code = run(engine, "inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip()
    expect(code == "0", f"the gateway ended with {code}")
    sys.stdout.write("the image builds, and works as an account without rights, root read-only\n")


def run(*words: str, cwd: Path = ROOT, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command, which must exit with `code` unless that is `None`."""
    done = subprocess.run(
        words,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=5 * LIMIT_S,
        check=False,
    )
    expect(code in {None, done.returncode}, f"{shlex.join(words)}\n{done.stdout}")
    return done


def expect(condition: bool, message: str) -> None:
    """End the program with a message unless a condition is true."""
    if not condition:
        raise SystemExit(f"error: {message}")


if __name__ == "__main__":
    main()
