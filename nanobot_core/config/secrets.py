"""Finds secrets in a configuration, and masks them in texts."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from urllib.parse import quote, quote_plus, unquote

from nanobot_core.messages import JsonObject, JsonValue

MASK = "********"
MIN_SECRET_CHARS = 4
"""Shorter values are not masked, because they occur in ordinary texts."""
MIN_REDACTED_CHARS = 8
"""Shorter values stay in texts for people and models, where a wrong mask does harm."""
MIN_ENCODED_CHARS = 12
"""Shorter values are not searched in base64."""
MAX_PIECE_CHARS = 256
"""A longer secret is searched in pieces, so that the time is linear in the text."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = re.compile(
    r"apikeys?|authorization|cookie|credentials?|dsn|key|pass(?:phrase|wd|word)|pin|pwd|secrets?|token"
)
_WORKING_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""Variables of the shell (POSIX.1-2017, section 8.3) whose names resemble passwords."""
_PLAIN_ENDINGS = re.compile(
    r"enabled|endpoint|env|file|id|length|limit|name|path|policy|s|seconds|type|uri|url"
)
_OPEN_ENDED = re.compile(r"env|environment|headers")
"""Last words of mappings for other programs, whose keys may have any meaning."""
_POSTED_TO = re.compile(r"callback|hook|webhook")
"""Words of keys for URLs that are secrets themselves (Slack, Discord, Teams)."""
_USER_INFO = re.compile(r"://[^/\s@:]*:([^/\s@]+)@")
_LONE_USER = re.compile(r"://([^/\s@:]+)@")
_TOKEN_LIKE = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[^\s/\\]{16,}")
_QUERY_VALUE = re.compile(r"[?&]([^=&#\s]+)=([^&#\s]+)")
_ADDRESS_PATH = re.compile(r"://[^/\s?#]+(/[^\s?#]+)")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BOT = re.compile(r"bot(\d+:[\w-]+)")
_RUN = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16,}")
_MIN_TOKEN_CHARS = 16
_NAME = re.compile(r"[A-Za-z0-9]+")
_MIN_CHANGES = 5
"""Changes between digits, capitals and small letters from which a text counts as random."""
_ORDINARY = re.compile(
    r"(?i)anonymous|changeme|disabled|localhost|not[_-]?set|password|required|undefined|username"
)
_MIN_DIFFERENT = 4
_TRIE_DEPTH = 6
_ASSIGNED = re.compile(r"(-{0,2}[\w-]+)[=:]\s*(.+)", re.DOTALL)


def names_secret(key: str) -> bool:
    """Return whether the words of `key` name a secret (``apiKey``, ``X_TOKEN``)."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or _PLAIN_ENDINGS.fullmatch(words[-1]):
        return False
    return any(map(_SECRET_WORDS.fullmatch, words)) or words[-2:] == ["api", "keys"]


def resembles_secret(value: JsonValue) -> bool:
    """Return whether `value` looks like a secret, whatever its key."""
    text = value if isinstance(value, str) else ""
    return bool(_TOKEN_LIKE.search(text) or _USER_INFO.search(text))


def find_secrets(value: JsonValue, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the secrets in a tree: values of keys that name a secret, and secrets in URLs.

    In lists for command lines, also values of such options (``--token abc``, ``--api-key=abc``).
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
    """Yield the secrets of the URLs in `text`, as written and decoded."""
    found = _USER_INFO.findall(text)
    found += filter(resembles_secret, _LONE_USER.findall(text))
    if "://" in text:
        for name, value in _QUERY_VALUE.findall(text):
            found += [value] if names_secret(name) or resembles_secret(value) else []
        for path in _ADDRESS_PATH.findall(text):
            found += filter(_is_token, path.split("/"))
        found += _BOT.findall(text)
    for secret in found:
        yield secret
        yield unquote(secret)


def _is_token(part: str) -> bool:
    """Whether a part of a URL path is a secret: random, not words."""
    if _UUID.fullmatch(part) or _BOT.fullmatch(part) or _RUN.search(part):
        return True
    changes = sum(len(_WORD.findall(name)) - 1 for name in _NAME.findall(part))
    return len(part) >= _MIN_TOKEN_CHARS and changes >= _MIN_CHANGES


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
    """Return the secrets that are long enough to be masked in texts."""
    return frozenset(secret for secret in found if len(secret) >= MIN_SECRET_CHARS)


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in variables: values of names for secrets, and secrets in URLs."""
    for name, value in environ.items():
        yield from _address_secrets(value)
        if names_secret(name) and name not in _WORKING_FOLDERS:
            yield value


class Redactor:
    """Replaces the secrets of one configuration in texts, in time linear in the text.

    It finds a secret as plain text, in JSON, in the `repr` of a Python value, and in a URL, and a
    secret of at least `MIN_ENCODED_CHARS` also in base64, anywhere in the encoded text. It does not
    find a secret that is split by a line break or encoded in another way (hex, reversed).

    Args:
        secrets: values to replace; those shorter than `MIN_SECRET_CHARS` are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = maskable(secrets)
        self._current: dict[str, frozenset[str]] = {}
        self._redacted: re.Pattern[str] | None = None
        self._masked: re.Pattern[str] | None = None
        # The log's thread must not keep an expression that it made before secrets were added.
        self._changing = threading.Lock()

    @property
    def secrets(self) -> frozenset[str]:
        """The known secrets."""
        return self._secrets.union(*self._current.values())

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secrets."""
        more = maskable(secrets) - self._secrets
        if more:
            with self._changing:
                self._secrets |= more
                self._redacted = self._masked = None

    def learn_current(self, owner: str, secrets: Iterable[str]) -> None:
        """Add secrets that change, such as tokens, instead of the previous ones of `owner`."""
        found = maskable(secrets)
        if found != self._current.get(owner):
            with self._changing:
                self._current[owner] = found
                self._redacted = self._masked = None

    def redact(self, text: str) -> str:
        """Return a text for people and models without secrets.

        Values shorter than `MIN_REDACTED_CHARS` stay, and so do values that are unlikely to be
        secrets: paths, ordinary words (``changeme``), and repetitions of a few characters.
        """
        with self._changing:
            pattern = self._redacted
            if pattern is None:
                pattern = self._redacted = _pattern(filter(_is_strong, self.secrets))
        return pattern.sub(MASK, text)

    def mask(self, text: str) -> str:
        """Return a text for logs and error messages, where a wrong mask does no harm."""
        with self._changing:
            pattern = self._masked
            if pattern is None:
                pattern = self._masked = _pattern(self.secrets)
        return pattern.sub(MASK, text)


def _is_strong(secret: str) -> bool:
    """Whether a secret is recognised by its value alone."""
    if len(secret) < MIN_REDACTED_CHARS or _ORDINARY.fullmatch(secret):
        return False
    is_path = secret.startswith(("/", "~/", "./")) and not resembles_secret(secret)
    is_boundary = secret.startswith("-----") and secret.endswith("-----")  # of a PEM file
    return not is_path and not is_boundary and len(set(secret)) >= _MIN_DIFFERENT


def _pattern(secrets: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for every form of `secrets`, the longest first."""
    words = {piece for secret in secrets for form in _forms(secret) for piece in _pieces(form)}
    return re.compile(_alternation(sorted(words), _TRIE_DEPTH) if words else r"(?!)")


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    encoded = secret.encode("utf-8", "surrogatepass")
    yield quote(encoded, safe="")
    yield quote(encoded)
    yield quote_plus(encoded)
    if len(secret) >= MIN_ENCODED_CHARS:
        for offset in range(3):
            # The outer characters of the encoded text also depend on its surroundings.
            text = base64.b64encode(bytes(offset) + encoded).decode("ascii")
            own = text[-(-offset * 8 // 6) : (offset + len(encoded)) * 8 // 6]
            yield own
            yield own.replace("+", "-").replace("/", "_")


def _pieces(form: str) -> Iterator[str]:
    """Yield `form` in pieces of equal length, at most `MAX_PIECE_CHARS`."""
    count = -(-len(form) // MAX_PIECE_CHARS)
    length = -(-len(form) // count)
    for start in range(0, len(form), length):
        yield form[start : start + length]


def _alternation(words: list[str], depth: int) -> str:
    """Return an expression for sorted `words`, as a tree, so that no character is read twice."""
    start = _common_beginning(words[0], words[-1])
    rests = [word[len(start) :] for word in words if len(word) > len(start)]
    if not rests:
        return re.escape(start)
    if depth:
        groups = (list(group) for _, group in groupby(rests, key=lambda rest: rest[0]))
        branches = [_alternation(group, depth - 1) for group in groups]
    else:
        branches = [re.escape(rest) for rest in sorted(rests, key=len, reverse=True)]
    is_optional = "?" if len(rests) < len(words) else ""
    return f"{re.escape(start)}(?:{'|'.join(branches)}){is_optional}"


def _common_beginning(first: str, last: str) -> str:
    """Return the common start of the first and last of sorted words, and so of all."""
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def mask_tree(value: JsonObject, redactor: Redactor) -> JsonObject:
    """Return a copy of `value` that can be shown.

    Variables and headers for other programs are masked completely.
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
        return redactor.mask(inner) if isinstance(inner, str) else inner

    shown = masked(value, False)
    return shown if isinstance(shown, dict) else {}
