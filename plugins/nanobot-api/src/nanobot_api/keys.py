"""Keys: who may call, with which rights and limits."""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from nanobot_api.database import Database
from nanobot_api.error import ApiError, Failure, quota_used_up, too_many
from nanobot_core import NanobotError, ToolRule

if TYPE_CHECKING:
    from nanobot_core import Clock, PluginContext

AGENT: Final = "nanobot"
PLAIN: Final = "nanobot-plain"
KEY_PREFIX: Final = "nanobot-"
_MINUTE_S: Final = 60.0


class ApiKey(BaseModel):
    """The rights and limits of a program.

    Attributes:
        name: names the program; its sessions, responses and requests belong to this name.
        authority: whose rights the agent has when it works for the program.
        allow: patterns of the tools that may be used.
        deny: patterns of the tools among them that may not.
        models: patterns of the models that may be named.
        requests_per_minute: requests a minute, on average, or ``None`` for any number.
        tokens_per_day: tokens a day in UTC, or ``None`` for any number.
        user_names_session: the field ``user`` of a request names a session.
        created_at: when it was added.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
    authority: Literal["owner", "guest"] = "guest"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    models: tuple[str, ...] = (AGENT, PLAIN)
    requests_per_minute: int | None = Field(default=60, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)
    user_names_session: bool = False
    created_at: AwareDatetime

    @property
    def tools(self) -> ToolRule:
        """What limits the tools."""
        return ToolRule(allow=self.allow, deny=self.deny)

    def may_use(self, model: str) -> bool:
        """Whether the key allows a model."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class KeyExists(NanobotError):
    """There is a key of that name."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        super().__init__(f"there is a key '{name}'; revoke it first, or choose another name")


class KeyStore:
    """The keys, of which only hashes are stored, and the tokens that they have used. Blocks."""

    def __init__(self, ctx: PluginContext) -> None:
        self._database = ctx.shared(Database)

    def add(self, key: ApiKey) -> str:
        """Store a key and return its secret, which cannot be read again.

        Raises:
            KeyExists: another key has the name.
            StoreUnusable: it is not stored.
        """
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        row = (key.name, _digest(secret), key.model_dump_json())
        with self._database.transaction() as connection:
            found = connection.execute("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", row)
            if not found.rowcount:
                raise KeyExists(key.name)
        return secret

    def all(self) -> list[ApiKey]:
        """Return every key, by name."""
        with self._database.transaction() as connection:
            rows = connection.execute("SELECT detail FROM keys ORDER BY name").fetchall()
        return [ApiKey.model_validate_json(detail) for (detail,) in rows]

    def revoke(self, name: str) -> bool:
        """Delete a key; False if it does not exist."""
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM keys WHERE name = ?", (name,)).rowcount > 0

    def find(self, secret: str, day: str) -> tuple[ApiKey, str, int] | None:
        """Return the key with a secret, its hash, and the tokens that it has used on a day.

        The secret has 256 random bits, so a hash without salt and rounds protects it, and a search
        for the hash reveals nothing by its duration.
        """
        digest = _digest(secret)
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT detail, coalesce(tokens, 0) FROM keys "
                "LEFT JOIN spent ON spent.name = keys.name AND day = ? WHERE digest = ?",
                (day, digest),
            ).fetchone()
        return (ApiKey.model_validate_json(row[0]), digest, row[1]) if row else None

    def digests(self) -> frozenset[str]:
        """Return the hashes of all keys."""
        with self._database.transaction() as connection:
            return frozenset(row[0] for row in connection.execute("SELECT digest FROM keys"))

    def spend(self, name: str, day: str, tokens: int) -> None:
        """Add tokens to what a key has used; earlier days are forgotten."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM spent WHERE name = ? AND day < ?", (name, day))
            connection.execute(
                "INSERT INTO spent VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens",
                (name, day, tokens),
            )


class Allowances:
    """The requests that each key may make now: a token bucket for each name."""

    def __init__(self, ctx: PluginContext) -> None:
        self._clock: Clock = ctx.clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: ApiKey) -> None:
        """Count a request.

        Raises:
            ApiError: the key has made too many.
        """
        limit = key.requests_per_minute
        if limit is None:
            return
        now_s = self._clock.monotonic_s()
        tokens, filled_at_s = self._buckets.get(key.name, (float(limit), now_s))
        tokens = min(tokens + (now_s - filled_at_s) * limit / _MINUTE_S, float(limit))
        if tokens < 1:
            self._buckets[key.name] = (tokens, now_s)
            wait_s = (1 - tokens) * _MINUTE_S / limit
            message = f"this key may make {limit} requests a minute; wait {math.ceil(wait_s)} s"
            raise too_many(message, wait_s)
        self._buckets[key.name] = (tokens - 1, now_s)


@dataclass(frozen=True, slots=True)
class Caller:
    """A program that has shown its key.

    Attributes:
        key: its rights.
        digest: hash of its key.
    """

    key: ApiKey
    digest: str


async def identify(ctx: PluginContext, authorization: str) -> tuple[Caller, int]:
    """Return who sends a request, and the tokens that they have used today.

    Args:
        authorization: the header of this name. Keys in other places are not read, so that no log
            of addresses contains them.

    Raises:
        ApiError: the key is missing or wrong.
        StoreUnusable: the keys cannot be read.
    """
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    found = None
    if scheme.lower() == "bearer" and secret.startswith(KEY_PREFIX):
        store = ctx.shared(KeyStore)
        found = await ctx.shared(Database).finish(lambda: store.find(secret, today(ctx)))
    if found is None:
        message = (
            "the key is missing or wrong; send 'Authorization: Bearer KEY' with a key that "
            "'nanobot api keys add' has printed"
        )
        raise ApiError(Failure(status=401, message=message, code="invalid_api_key"))
    key, digest, spent = found
    return Caller(key, digest), spent


def demand_tokens(key: ApiKey, spent: int) -> None:
    """Refuse a request of a key without tokens.

    Raises:
        ApiError: the key has used all its tokens of today.
    """
    limit = key.tokens_per_day
    if limit is not None and spent >= limit:
        message = f"this key has used {spent:,} of its {limit:,} tokens of today (UTC)"
        raise quota_used_up(message)


async def count_tokens(ctx: PluginContext, name: str, tokens: int) -> None:
    """Add tokens to what a key has used today."""
    store = ctx.shared(KeyStore)
    await ctx.shared(Database).finish(lambda: store.spend(name, today(ctx), tokens))


def today(ctx: PluginContext) -> str:
    """Return the date in UTC."""
    return f"{ctx.clock.now():%Y-%m-%d}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
