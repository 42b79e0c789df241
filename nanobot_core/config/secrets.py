"""Which values are secret, and texts without them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from nanobot_core.messages import JsonObject, JsonValue

MASK = "********"
MIN_SECRET_CHARS = 4
"""Shorter values are not masked in texts: they would hit innocent ones everywhere."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = re.compile(
    r"apikeys?|authorization|cookie|credentials?|dsn|key|pass(?:phrase|wd|word)|pin|pwd|secrets?|token"
)
_PLAIN_ENDINGS = re.compile(
    r"enabled|endpoint|env|file|id|length|limit|name|path|policy|s|seconds|type|uri|url"
)
_USER_INFO = re.compile(r"://[^/\s@:]*:([^/\s@]+)@")
_TOKEN_LIKE = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[^\s/\\]{16,}")


def names_secret(key: str) -> bool:
    """Tell whether a value under `key` may be a secret, by its words (``apiKey``, ``X_TOKEN``)."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or _PLAIN_ENDINGS.fullmatch(words[-1]):
        return False
    return any(map(_SECRET_WORDS.fullmatch, words)) or words[-2:] == ["api", "keys"]


def resembles_secret(value: JsonValue) -> bool:
    """Tell whether `value` may be a secret that stands in the wrong place, by its look."""
    text = value if isinstance(value, str) else ""
    return bool(_TOKEN_LIKE.search(text) or _USER_INFO.search(text))


def find_secrets(value: JsonValue, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the secrets in a tree: texts under keys that name one, and passwords in URLs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find_secrets(inner, is_secret=is_secret or names_secret(key))
    elif isinstance(value, list):
        for inner in value:
            yield from find_secrets(inner, is_secret=is_secret)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        yield from _USER_INFO.findall(text)
        if is_secret:
            yield text
            # "Bearer abc" is a secret, and so is "abc".
            yield text.rpartition(" ")[2]


def maskable(found: Iterable[str]) -> frozenset[str]:
    """Return the secrets that can be replaced in texts; shorter ones stand in ordinary words."""
    return frozenset(secret for secret in found if len(secret) >= MIN_SECRET_CHARS)


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names say that they are secret."""
    for name, value in environ.items():
        if names_secret(name):
            yield value


def mask_tree(value: JsonObject, secrets: Collection[str]) -> JsonObject:
    """Return a copy of `value` that can be shown."""

    def masked(inner: JsonValue, is_secret: bool) -> JsonValue:
        if isinstance(inner, dict):
            return {
                key: masked(part, is_secret or names_secret(key)) for key, part in inner.items()
            }
        if isinstance(inner, list):
            return [masked(part, is_secret) for part in inner]
        if is_secret and not (inner is None or inner == "" or isinstance(inner, bool)):
            return MASK
        return mask_text(inner, secrets) if isinstance(inner, str) else inner

    return {key: masked(inner, names_secret(key)) for key, inner in value.items()}


def mask_text(text: str, secrets: Collection[str]) -> str:
    """Return `text` with every secret in it replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
