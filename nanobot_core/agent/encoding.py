"""Exact counts of tokens, if tiktoken and one of its encodings are on this machine.

tiktoken downloads an encoding that is not in its cache, without a time limit. So it is only asked
for one that is there and complete. Loading takes half a second and up to 70 MB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from nanobot_core.config.environment import environment

_FOLDERS = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
"""Variables that name tiktoken's cache; the first one that is set applies."""
_DEFAULT_FOLDER = "data-gym-cache"
_ENCODINGS = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""Encodings, newest first: the name of each in the cache, and the SHA-256 of its content."""


def count_exactly(texts: Iterable[str]) -> int | None:
    """Return the tokens of `texts`, or ``None`` if they cannot be counted here. Blocks."""
    name = _cached_encoding() if find_spec("tiktoken") else None
    if name is None:
        return None
    import tiktoken

    encoding = tiktoken.get_encoding(name)
    return sum(len(encoding.encode_ordinary(text)) for text in texts)


def _cached_encoding() -> str | None:
    """Return the name of an encoding that tiktoken can load without the network."""
    values = environment(_FOLDERS)
    named = next((values[name] for name in _FOLDERS if name in values), None)
    folder = Path(tempfile.gettempdir(), _DEFAULT_FOLDER) if named is None else Path(named)
    if named == "":  # tiktoken's way to say that there is no cache
        return None
    for name, (file, digest) in _ENCODINGS.items():
        try:
            if sha256((folder / file).read_bytes()).hexdigest() == digest:
                return name
        except OSError:
            continue
    return None
