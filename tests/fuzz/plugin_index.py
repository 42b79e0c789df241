"""An index of plugins is refused, or can be searched and blocks versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from nanobot_core.install.indexes import parse_index
from nanobot_core.plugins.published import Published

TOKENS: Final = (
    b'"schema_version":1', b'"plugins":[', b'"blocked":[', b'{"name":"', b'"ids":["',
    b'"versions":', b'"reason":"', b'"hashes":{', b'">=1,<2"', b'"==*"', b'"~=0"', b"[", b"]",
    b"{", b"}", b",", b":", b'"\\ud800"', b"null", b"1e999", b'"sections":["', b"-._",
)  # fmt: skip


def fuzz_one(data: bytes) -> None:
    """Read an index and use it."""
    with suppress(ValueError):
        published = Published([parse_index(data).model_dump()])
        for name, entry in published.plugins.items():
            assert published.distribution_of(entry["ids"][0])
            published.block_of(name, "1.0").encode()
        assert set(published.sections.values()) <= set(published.plugins)


def seeds() -> Iterator[bytes]:
    """Yield indexes."""
    yield b'{"schema_version":1,"plugins":[{"name":"A-b","ids":["a"],"sections":["tools.a"]}]}'
    plugin = b'{"name":"a","ids":["a"],"core":">=0.1","hashes":{}}'
    block = b'{"name":"a","versions":"<2","reason":"it is broken"}'
    yield b'{"schema_version":1,"plugins":[%b],"blocked":[%b]}' % (plugin, block)
