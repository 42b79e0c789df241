"""Look for bytes that break a target: ``python -m tests.fuzz TARGET --minutes N``.

atheris chooses the bytes by the lines that they reach. What breaks the target is printed once for
each place, and kept in ``.fuzz/TARGET/found``; the run goes on. Bytes that reached new lines stay
in ``.fuzz/TARGET/corpus`` for the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.fuzz import TARGETS

HERE: Final = Path(__file__).parent
_WORK: Final = HERE.parent.parent / ".fuzz"
_PACKAGES: Final = [
    "nanobot_core",
    *(
        f"nanobot_{name}"
        for name in (
            "anthropic",
            "discord",
            "email",
            "openai",
            "shell",
            "skills",
            "slack",
            "telegram",
            "webhook",
            "whatsapp",
        )
    ),
]
_LIMIT_S: Final = 20
_MAX_BYTES: Final = 4096
_MEMORY_MB: Final = 3000


class _Finder:
    """Runs a target, and notes each place where it fails once."""

    def __init__(self, fuzz_one: Callable[[bytes], None], folder: Path) -> None:
        self._fuzz_one, self._folder = fuzz_one, folder
        self._seen: set[str] = set()

    def __call__(self, data: bytes) -> None:
        try:
            self._fuzz_one(data)
        except Exception as error:  # noqa: BLE001 - every failure is what we look for
            self._note(data, error)

    def _note(self, data: bytes, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = [f"{frame.filename}:{frame.lineno}" for frame in frames[-4:]]
        name = hashlib.sha256("\n".join([type(error).__name__, *place]).encode()).hexdigest()[:12]
        if name in self._seen:
            return
        self._seen.add(name)
        (self._folder / name).write_bytes(data)
        trace = "".join(traceback.format_exception(error))
        sys.stdout.write(f"\n=== found {name}: {data[:300]!r}\n{trace[-3000:]}\n")
        sys.stdout.flush()


def load(target: str) -> ModuleType:
    """Return the module of a target."""
    return importlib.import_module(f"tests.fuzz.{target}")


def _dictionary(tokens: tuple[bytes, ...], path: Path) -> Path:
    lines = ("".join(f"\\x{byte:02x}" for byte in token) for token in tokens)
    path.write_text("".join(f'"{line}"\n' for line in lines), "ascii")
    return path


def main() -> None:
    """Fuzz one target."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=1.0)
    chosen = parser.parse_args()
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=_PACKAGES):
        module = load(chosen.target)
    from loguru import logger

    logger.remove()
    corpus, found = (_WORK / chosen.target / name for name in ("corpus", "found"))
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    kept = [path.read_bytes() for path in (HERE / "cases" / chosen.target).glob("*.bin")]
    for data in (*module.seeds(), *kept):
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    arguments = [
        sys.argv[0],
        f"-max_total_time={round(chosen.minutes * 60)}",
        f"-timeout={_LIMIT_S}",
        f"-max_len={_MAX_BYTES}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-artifact_prefix={found}/",
        f"-dict={_dictionary(module.TOKENS, _WORK / chosen.target / 'tokens')}",
        "-print_final_stats=1",
        str(corpus),
    ]
    sys.stdout.write(f"{chosen.target}: from {time.strftime('%H:%M:%S')}\n")
    sys.stdout.flush()
    atheris.Setup(arguments, _Finder(module.fuzz_one, found))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
