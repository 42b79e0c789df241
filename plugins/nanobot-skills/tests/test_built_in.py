"""The built-in skills: each conforms, and its commands do what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from nanobot_skills.library import BUILT_IN
from nanobot_skills.skill import Skill, parse_skill

NAMES = sorted(folder.name for folder in BUILT_IN.iterdir() if folder.is_dir())
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def load(name: str) -> Skill:
    return parse_skill(name, (BUILT_IN / name / "SKILL.md").read_bytes())


def commands(name: str) -> list[str]:
    """Return the blocks of shell commands of a skill."""
    return [text for kind, text in _BLOCK.findall(load(name).body) if kind == "bash"]


def run(script: str, folder: Path, **environment: str) -> str:
    """Run a block as the tool `exec` would, and return its output."""
    program = shutil.which("bash") or "/bin/sh"
    done = subprocess.run(
        [program, "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stub(folder: Path, name: str, program: str) -> str:
    """Put a Python program called `name` first on the PATH; return that PATH."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!{sys.executable}\n{program}")
    file.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_there_are_eight() -> None:
    assert [
        *("clawhub", "cron", "github", "memory", "skill-creator", "summarize", "tmux", "weather")
    ] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_conforms_and_is_short(name: str) -> None:
    skill = load(name)

    assert skill.findings == ()
    assert len(skill.body) < 6_000
    assert skill.always is (name == "memory")
    assert len(skill.body) < 1_500 or not skill.always


def test_the_example_of_the_skill_creator_conforms() -> None:
    (example,) = [
        text for kind, text in _BLOCK.findall(load("skill-creator").body) if kind == "markdown"
    ]

    assert parse_skill("release-notes", example.encode()).findings == ()


# --- weather ---------------------------------------------------------------------------------


class Service(BaseHTTPRequestHandler):
    """Stands for Open-Meteo and for the API of GitHub."""

    asked: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.asked.append((parts.path, parse_qs(parts.query)))
        body = json.dumps(self.answer(parts.path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, path: str) -> object:
        if path == "/v1/search":
            return {"results": [{"name": "Bonn", "latitude": 50.73, "longitude": 7.1}]}
        if path == "/v1/forecast":
            return {"current": {"temperature_2m": 14.0, "weather_code": 61}}
        return {"tag_name": "v1.2"} if "releases" in path else [{"filename": "a.py"}]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Service.asked.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_weather_asks_for_coordinates_and_then_for_the_forecast(
    service: str, tmp_path: Path
) -> None:
    places, forecast = (
        json.loads(run(each, tmp_path, GEOCODING_URL=service, WEATHER_URL=service))
        for each in commands("weather")
    )

    assert places["results"][0]["name"] == "Bonn"
    assert forecast["current"]["weather_code"] == 61
    (search, place), (path, query) = Service.asked
    assert (search, place["name"]) == ("/v1/search", ["Bonn"])
    assert (path, query["latitude"], query["forecast_days"]) == ("/v1/forecast", ["50.73"], ["3"])
    assert "temperature_2m" in query["current"][0].split(",")


# --- github ----------------------------------------------------------------------------------

GH = """
import json, os, sys, urllib.request

OPTIONS = {
    "issue list": {"--state", "--limit", "--json"},
    "issue view": {"--json"},
    "issue create": {"--title", "--body"},
    "pr list": {"--state", "--limit", "--json"},
    "pr view": {"--json"},
    "pr diff": set(),
    "pr checks": set(),
    "pr comment": {"--body"},
    "run list": {"--limit", "--json"},
    "run view": {"--log-failed"},
}
words = sys.argv[1:]
if words[0] == "api":
    answer = urllib.request.urlopen(os.environ["GITHUB_API"] + "/" + words[1], timeout=20)
    print(answer.read().decode())
    sys.exit()
command = " ".join(words[:2])
given = {word for word in words if word.startswith("--")}
if given - OPTIONS[command] - {"--repo"}:
    sys.exit(f"unknown flag of {command}: {given}")
assert words[words.index("--repo") + 1] == "octo/demo"
print(json.dumps(words))
"""


def test_github_calls_gh_with_options_that_it_has(service: str, tmp_path: Path) -> None:
    path = stub(tmp_path / "bin", "gh", GH)

    printed = [run(block, tmp_path, PATH=path, GITHUB_API=service) for block in commands("github")]

    assert [len(text.splitlines()) for text in printed] == [6, 2, 2, 2]
    assert [path for path, _ in Service.asked] == [
        "/repos/octo/demo/releases/latest",
        "/repos/octo/demo/pulls/12/files",
    ]
    assert "v1.2" in printed[2]


# --- clawhub ---------------------------------------------------------------------------------

NPX = """
import pathlib, sys

words = sys.argv[1:]
assert words[:2] == ["--yes", "clawhub@latest"], words
if words[2] == "search":
    print("release-notes  1.2.0  somebody")
else:
    assert words[2] == "install" and words[words.index("--version") + 1] == "1.2.0", words
    folder = pathlib.Path(words[words.index("--workdir") + 1], "skills", words[3])
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\\nname: release-notes\\ndescription: x\\n---\\ny")
"""


def test_clawhub_installs_one_version_for_review_and_then_moves_it(tmp_path: Path) -> None:
    path = stub(tmp_path / "bin", "npx", NPX)
    search, install, move = commands("clawhub")

    assert "release-notes" in run(search, tmp_path, PATH=path)
    run(install, tmp_path, PATH=path)
    assert not (tmp_path / "skills").exists()
    run(move, tmp_path, PATH=path)

    assert (tmp_path / "skills" / "release-notes" / "SKILL.md").is_file()
    assert not (tmp_path / ".review").exists()


# --- tmux ------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_runs_a_program_on_its_own_socket_and_ends_it(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "TERM": "xterm", "SHELL": "/bin/sh"}
    begin, send, wait, end = commands("tmux")
    try:
        run(begin, tmp_path, **environment)
        run(send, tmp_path, **environment)
        assert "result-42" in run(wait, tmp_path, **environment)
    finally:
        run(end, tmp_path, **environment)

    assert run(end.splitlines()[0] + '\ntmux -S "$SOCKET" ls 2>&1 || true', tmp_path, **environment)
