"""A wheel is refused, or all that it would create is inside of the environment."""

from __future__ import annotations

import base64
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nanobot_core.errors import InstallError
from nanobot_core.install.candidate import read_wheel
from nanobot_core.install.environment import Interpreter

TOKENS: Final = (
    b"a-1.dist-info/", b"RECORD", b"METADATA", b"entry_points.txt", b"a-1.data/scripts/", b"../",
    b"sha256=", b"Name: a\n", b"Version: 1\n", b"[nanobot]\n", b"a = a.plugin\n", b",", b".pth",
    b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"nanobot-plugin.json", b"Requires-Dist: b>=1\n",
)  # fmt: skip
_ENVIRONMENT: Final = Path("environment")


def fuzz_one(data: bytes) -> None:
    """Read a wheel named ``a-1-py3-none-any.whl``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a-1-py3-none-any.whl")
        file.write_bytes(data)
        with suppress(InstallError):
            found = read_wheel(file)
            assert (found.name, found.version) == ("a", "1")
            interpreter = Interpreter(
                python="python",
                prefix=_ENVIRONMENT,
                base_prefix=Path("base"),
                site=_ENVIRONMENT / "lib" / "python3" / "site-packages",
                scripts=_ENVIRONMENT / "bin",
                stdlib=Path("stdlib"),
                has_pip=True,
                uv=None,
            )
            for path in found.paths(interpreter):
                assert _ENVIRONMENT in path.parents
                assert ".." not in path.parts


def seeds() -> Iterator[bytes]:
    """Yield wheels, one of them with files in each folder of an environment."""
    entry_points = "[nanobot]\na = a.plugin\n[console_scripts]\nring = a.plugin:main\n"
    yield wheel({"a/plugin.py": ""}, entry_points)
    yield wheel({"a-1.data/scripts/x": "", "a-1.data/data/share/y": "", "b.pth": ""}, entry_points)
    yield wheel({"../x": ""}, entry_points)


def wheel(files: dict[str, str], entry_points: str) -> bytes:
    """Return a wheel of distribution ``a`` with these files."""
    info = "a-1.dist-info"
    files = {
        **files,
        f"{info}/METADATA": "Name: a\nVersion: 1\nRequires-Dist: b>=1\n",
        f"{info}/entry_points.txt": entry_points,
    }
    lines = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items()]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": "".join(lines)}.items():
            archive.writestr(path, text)
    return content.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
