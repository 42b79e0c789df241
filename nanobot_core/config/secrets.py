"""Which values are secret, and texts without them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import unquote

from nanobot_core.messages import JsonObject, JsonValue

MASK = "********"
MIN_SECRET_CHARS = 4
"""Shorter values are not masked in texts: they would hit innocent ones everywhere."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = re.compile(
    r"apikeys?|authorization|cookie|credentials?|dsn|key|pass(?:phrase|wd|word)|pin|pwd|secrets?|token"
)
_WORKING_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Variables of the shell (POSIX.1-2017, section 8.3) that sound like passwords."""
_PLAIN_ENDINGS = re.compile(
    r"enabled|endpoint|env|file|id|length|limit|name|path|policy|s|seconds|type|uri|url"
)
_OPEN_ENDED = re.compile(r"env|environment|headers")
"""Last words of mappings for other programs; which of their values are secret, those know."""
_POSTED_TO = re.compile(r"callback|hook|webhook")
"""Words of keys for addresses that let in whoever knows them (Slack, Discord, Teams)."""
_USER_INFO = re.compile(r"://[^/\s@:]*:([^/\s@]+)@")
_LONE_USER = re.compile(r"://([^/\s@:]+)@")
_TOKEN_LIKE = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[^\s/\\]{16,}")
_QUERY_VALUE = re.compile(r"[?&]([^=&#\s]+)=([^&#\s]+)")
_ADDRESS_PATH = re.compile(r"://[^/\s?#]+(/[^\s?#]+)")
_ASSIGNED = re.compile(r"(-{0,2}[\w-]+)[=:]\s*(.+)", re.DOTALL)


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
    """Yield the secrets in a tree: texts under keys that name one, and what stands in addresses.

    Of lists for command lines, those that an option names (``--token abc``, ``--api-key=abc``).
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find_secrets(inner, is_secret=is_secret or names_secret(key))
            if _is_open_ended(key) and isinstance(inner, dict):
                yield from _tokens_in(inner)
            if isinstance(inner, str) and _is_posted_to(key):
                for path in _ADDRESS_PATH.findall(inner):
                    yield from (part for part in path.split("/") if resembles_secret(part))
    elif isinstance(value, list):
        before: JsonValue = None
        for inner in value:
            is_named = isinstance(before, str) and before.startswith("-") and names_secret(before)
            yield from find_secrets(inner, is_secret=is_secret or is_named)
            if isinstance(inner, str) and (pair := _ASSIGNED.fullmatch(inner)):
                yield from find_secrets(pair[2], is_secret=names_secret(pair[1]))
            before = inner
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        yield from _address_secrets(text)
        if is_secret:
            yield text
            # "Bearer abc" is a secret, and so is "abc".
            yield text.rpartition(" ")[2]


def _address_secrets(text: str) -> Iterator[str]:
    """Yield what is secret in the addresses in `text`, as written and as it is sent."""
    found = _USER_INFO.findall(text)
    found += filter(resembles_secret, _LONE_USER.findall(text))
    if "://" in text:
        for name, value in _QUERY_VALUE.findall(text):
            found += [value] if names_secret(name) or resembles_secret(value) else []
    for secret in found:
        yield secret
        yield unquote(secret)


def _tokens_in(values: JsonObject) -> Iterator[str]:
    for value in values.values():
        if isinstance(value, str) and resembles_secret(value):
            yield value
            yield value.rpartition(" ")[2]


def _is_open_ended(key: str) -> bool:
    words = _WORD.findall(key)
    return bool(words) and _OPEN_ENDED.fullmatch(words[-1].lower()) is not None


def _is_posted_to(key: str) -> bool:
    return any(_POSTED_TO.fullmatch(word.lower()) for word in _WORD.findall(key))


def maskable(found: Iterable[str]) -> frozenset[str]:
    """Return the secrets that can be replaced in texts; shorter ones stand in ordinary words."""
    return frozenset(secret for secret in found if len(secret) >= MIN_SECRET_CHARS)


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what is secret in variables: those named so, and what stands in addresses."""
    for name, value in environ.items():
        yield from _address_secrets(value)
        if names_secret(name) and name not in _WORKING_FOLDERS:
            yield value


def mask_tree(value: JsonObject, secrets: Collection[str]) -> JsonObject:
    """Return a copy of `value` that can be shown.

    Variables and headers for other programs are masked as a whole, whatever their names.
    """

    def is_foreign(key: str, inner: JsonValue) -> bool:
        return isinstance(inner, dict) and _is_open_ended(key)

    def masked(inner: JsonValue, is_secret: bool) -> JsonValue:
        if isinstance(inner, dict):
            return {
                key: masked(part, is_secret or names_secret(key) or is_foreign(key, part))
                for key, part in inner.items()
            }
        if isinstance(inner, list):
            return [masked(part, is_secret) for part in inner]
        if is_secret and not (inner is None or inner == "" or isinstance(inner, bool)):
            return MASK
        return mask_text(inner, secrets) if isinstance(inner, str) else inner

    shown = masked(value, False)
    return shown if isinstance(shown, dict) else {}


def mask_text(text: str, secrets: Collection[str]) -> str:
    """Return `text` with every secret in it replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
