"""What may be committed: names of files, and what their text gives away."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

VAGUE = frozenset({"util", "utils", "common", "misc"})
NOT_COMMITTED = frozenset({"uv.lock", "poetry.lock", "Pipfile.lock"})
RUN_AT_START = re.compile(r"(?:^|/)(?:[^/]+\.pth|(?:site|user)customize(?:\.py|/.*))$")
SKIPPED = re.compile(
    r"(?:^|/)(?:\.git|\.nox|\.venv|dist|_build|__pycache__|\.\w+_cache|\.hypothesis)/"
)

PUBLIC_REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|https?://\S+/simple/?(?=[\s\"'`)]|$)"
)
INDEX_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
MACHINE_PATHS = re.compile(r"(?<![\w.~/-])/(?:root|work)(?=[/\s\"'`:,;)]|$)")


def file_name_findings(root: Path) -> list[str]:
    """Name vague names, lock files, and files that each start of Python runs."""
    vague = [
        f"{path}: '{part}' says nothing about what it holds"
        for path in committed_files(root)
        for part in Path(path).parts
        if part.partition(".")[0] in VAGUE
    ]
    locks = [
        f"{path}: lock files name a package index; constraints.txt has versions"
        for path in committed_files(root)
        if Path(path).name in NOT_COMMITTED
    ]
    started = [
        f"{path}: each start of Python runs it where it is installed"
        for path in committed_files(root)
        if RUN_AT_START.search(path)
    ]
    return vague + locks + started


def leak_findings(root: Path, hosts: Iterable[str] = ()) -> list[str]:
    """Name lines that hold a package registry's host, one of `hosts`, or a path of one machine."""
    findings = []
    for path in committed_files(root):
        for number, line in enumerate(_text(root / path).splitlines(), start=1):
            if PUBLIC_REGISTRIES.search(line) or any(host in line for host in hosts):
                findings.append(f"{path}:{number}: names a package registry")
            if MACHINE_PATHS.search(line):
                findings.append(f"{path}:{number}: names a path of one machine")
    return findings


def index_hosts() -> set[str]:
    """Give the hosts of the package indexes that this environment is set to use."""
    urls = [url for name in INDEX_SETTINGS for url in os.environ.get(name, "").split()]
    return {host for url in urls if (host := urlsplit(url).hostname)}


def committed_files(root: Path) -> list[str]:
    """Give the files that git knows or would add; without git, all but caches and results."""
    if _git(root, "rev-parse", "--show-toplevel").strip() == str(root.resolve()):
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = set(filter(None, listed.split("\0")))
        return sorted(name for name in names if (root / name).is_file())
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not SKIPPED.search(name))


def _git(root: Path, *args: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=False, timeout=30
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""
