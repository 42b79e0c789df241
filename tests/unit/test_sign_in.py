"""TokenSource: one renewal at a time, early, and none is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core import (
    AuthenticationFailed,
    PrivateFile,
    ProviderError,
    ReservedSpace,
    Tokens,
    TokenSource,
    Unreachable,
    read_tokens,
    store_tokens,
    token_file,
)
from nanobot_core.sign_in import read_sign_in
from nanobot_core.testing import FakeClock, FakePluginContext

pytestmark = pytest.mark.anyio


class Service:
    """Renews tokens; a refresh token is accepted once.

    Attributes:
        used: the refresh tokens that were sent.
        failure: what the next renewals raise, or ``None``.
        gate: renewals wait for it.
        asked: a renewal has been requested.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.used: list[str] = []
        self.failure: ProviderError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def renew(self, tokens: Tokens) -> Tokens:
        self.used.append(tokens.refresh)
        self.asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        assert self.used.count(tokens.refresh) == 1, "the service revokes what is used twice"
        number = len(self.used)
        ends_at = self.clock.now().timestamp() + 3_600
        return replace(
            tokens,
            access=f"access-{number}",
            refresh=f"refresh-{number}",
            expires_at=ends_at,
        )


class Bench:
    """A service, the file with its tokens, and sources of tokens as processes have them."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = FakeClock()
        self.service = Service(self.clock)
        self.file = token_file(tmp_path, "codex_like")
        self.ctx = FakePluginContext(tmp_path)

    def source(self) -> TokenSource:
        return TokenSource(
            "codex_like",
            PrivateFile(self.file.path),
            self.service.renew,
            clock=self.clock,
            conceal=lambda secrets: self.ctx.conceal(secrets, name="codex_like"),
        )

    async def sign_in(self, *, lasts_s: float) -> None:
        ends_at = self.clock.now().timestamp() + lasts_s
        first = Tokens(access="access-0", refresh="refresh-0", expires_at=ends_at, account="a@b.c")
        await store_tokens(self.file, first)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_valid_token_is_used_and_concealed(bench: Bench) -> None:
    await bench.sign_in(lasts_s=3_600)

    assert (await bench.source().current()).access == "access-0"
    assert bench.service.used == []
    assert bench.ctx.concealed == {"codex_like": {"access-0", "refresh-0"}}


async def test_a_token_is_renewed_once_for_all_who_need_it(bench: Bench) -> None:
    await bench.sign_in(lasts_s=0)
    bench.service.gate.clear()
    sources = [bench.source(), bench.source()]  # as of two processes
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(source.current()) for source in sources * 3]
        await bench.service.asked.wait()
        bench.service.gate.set()

    assert {call.result().access for call in calls} == {"access-1"}
    assert bench.service.used == ["refresh-0"]
    stored = read_tokens(bench.file)
    assert stored is not None
    assert (stored.refresh, stored.account) == ("refresh-1", "a@b.c")
    assert "access-1" not in repr(stored)


async def test_others_use_a_valid_token_while_it_is_renewed(bench: Bench) -> None:
    await bench.sign_in(lasts_s=200)
    bench.service.gate.clear()
    source = bench.source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(source.current())
        await bench.service.asked.wait()
        assert (await source.current()).access == "access-0"
        bench.service.gate.set()

    assert first.result().access == "access-1", "renewed before it expires"
    assert (await source.current()).access == "access-1"


async def test_nobody_signed_in_is_an_error_with_a_remedy(bench: Bench) -> None:
    with pytest.raises(AuthenticationFailed, match="run nanobot providers login codex-like"):
        await bench.source().current()


async def test_a_login_and_a_logout_of_another_process_count_at_once(bench: Bench) -> None:
    source = bench.source()
    await bench.sign_in(lasts_s=3_600)
    assert (await source.current()).access == "access-0"
    bench.file.remove()

    with pytest.raises(AuthenticationFailed, match="not signed in"):
        await source.current()


async def test_without_network_the_old_token_is_used_until_it_expires(bench: Bench) -> None:
    await bench.sign_in(lasts_s=200)
    bench.service.failure = Unreachable("codex_like", "no network")
    source = bench.source()

    assert (await source.current()).access == "access-0"
    assert (await source.current()).access == "access-0"
    assert len(bench.service.used) == 1, "it is not tried for each request"
    await bench.clock.advance(201)
    with pytest.raises(Unreachable, match="no network"):
        await source.current()


async def test_a_sign_in_that_the_service_ended_is_not_tried_again(bench: Bench) -> None:
    await bench.sign_in(lasts_s=0)
    bench.service.failure = AuthenticationFailed("codex_like", "the sign-in has ended")
    source = bench.source()
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="has ended"):
            await source.current()

    assert bench.service.used == ["refresh-0"]
    bench.service.failure = None
    await store_tokens(bench.file, Tokens(access="", refresh="refresh-9"))
    assert (await source.current()).access == "access-2"


async def test_a_rejected_token_is_renewed_once(bench: Bench) -> None:
    await bench.sign_in(lasts_s=3_600)
    source = bench.source()
    first = await source.current()

    assert source.reject(first)
    assert not source.reject(first)
    second = await source.current()
    assert second.access == "access-1"
    assert not source.reject(second), "another token does not help"
    assert (await source.current()).access == "access-1"
    assert set(source.secrets) == {"access-1", "refresh-1"}


async def test_a_cancelled_caller_lets_the_renewal_be_stored(bench: Bench) -> None:
    await bench.sign_in(lasts_s=0)
    bench.service.gate.clear()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.source().current())
        await bench.service.asked.wait()
        call.cancel()
        bench.service.gate.set()

    assert call.cancelled()
    assert (await bench.source().current()).access == "access-1"


def _full(*_: object) -> object:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_no_refresh_token_is_spent_on_a_full_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.sign_in(lasts_s=200)
    monkeypatch.setattr(PrivateFile, "reserve", _full)
    source = bench.source()

    assert (await source.current()).access == "access-0"
    await bench.clock.advance(201)
    with pytest.raises(Unreachable, match="cannot be stored, so they are not renewed: No space"):
        await source.current()
    assert bench.service.used == []


async def test_tokens_that_could_not_be_stored_are_used_and_stored_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.sign_in(lasts_s=0)
    source = bench.source()
    with monkeypatch.context() as broken:
        broken.setattr(ReservedSpace, "fill", _full)
        assert (await source.current()).access == "access-1"
        assert (await source.current()).access == "access-1"

    assert (await source.current()).access == "access-1"
    assert (await bench.source().current()).access == "access-1"
    assert bench.service.used == ["refresh-0"]


def _loosen(path: Path) -> None:
    path.chmod(0o644)


def _empty(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.parametrize("spoil", [_loosen, _empty])
async def test_a_file_that_is_refused_says_why(bench: Bench, spoil: Callable[[Path], None]) -> None:
    await bench.sign_in(lasts_s=3_600)
    spoil(bench.file.path)
    found = read_sign_in(bench.file)

    assert found is not None
    assert str(bench.file.path) in found.problem
    with pytest.raises(AuthenticationFailed, match="providers login codex-like"):
        await bench.source().current()


async def test_a_time_of_expiry_that_is_no_time_is_reported(bench: Bench) -> None:
    bench.file.replace({**Tokens(access="a").to_json(), "expires_at": 10**400})
    found = read_sign_in(bench.file)

    assert found is not None
    assert "damaged" in found.problem


async def test_an_account_is_shown_with_the_end_of_what_cannot_be_renewed(bench: Bench) -> None:
    bench.file.replace(Tokens(access="a", expires_at=1_000_000.0, account="me").to_json())
    found = read_sign_in(bench.file)

    assert found is not None
    assert found.account == "me"
    assert found.ends_at is not None
    assert found.ends_at.timestamp() == 1_000_000
    assert json.loads(bench.file.path.read_text())["access"] == "a"
