"""Signing in and out, against servers that enforce the flows."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nanobot_core import (
    AuthenticationFailed,
    ConfigError,
    Overloaded,
    ProviderError,
    ProviderLogin,
    ProviderProtocolError,
    RateLimited,
    read_tokens,
    token_file,
)
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_openai.codex_login import CodexLogin
from nanobot_openai.copilot_login import CopilotLogin
from nanobot_openai.signin_http import AuthAnswer
from nanobot_openai.signin_settings import CodexSettings, CopilotSettings
from nanobot_openai.testing import ChatGPTStandIn, GitHubStandIn
from nanobot_openai.vendors import VENDORS

pytestmark = pytest.mark.anyio
SPECS = {spec.name: spec for spec in VENDORS}


class PassingClock(FakeClock):
    """Its time passes while something sleeps."""

    async def sleep(self, delay_s: float) -> None:
        """Return at once, `delay_s` later."""
        await self.advance(delay_s)


def free_ports(count: int) -> tuple[int, ...]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def visit(address: str, *, follow: bool = True, method: str = "GET") -> tuple[int, str]:
    """Return the status and, of a redirect that is not followed, its target."""
    opener = urllib.request.build_opener(*([] if follow else [NoRedirect]))
    request = urllib.request.Request(address, method=method)  # noqa: S310 - of a stand-in
    try:
        with opener.open(request, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Location", "")


@dataclass
class Person:
    """A `LoginPrompt`.

    Attributes:
        act: what the person does with the page.
        shown: the pages, with their codes.
        notes: what else was shown.
        clipboard: what the person pastes, in order.
    """

    act: Callable[[str], object] = visit
    shown: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clipboard: list[str] = field(default_factory=list)
    acting: list[asyncio.Future[object]] = field(default_factory=list)

    async def show(self, address: str, *, code: str = "", limit_s: float) -> None:
        assert 0 < limit_s <= 900
        self.shown.append((address, code))
        if not code:
            loop = asyncio.get_running_loop()
            self.acting.append(loop.run_in_executor(None, self.act, address))

    async def scan(self, text: str) -> None:
        raise AssertionError(f"no provider shows a code to scan, but this one showed {text!r}")

    async def note(self, text: str) -> None:
        self.notes.append(text)

    async def pasted(self) -> str:
        if not self.clipboard:
            await asyncio.gather(*self.acting)
        if not self.clipboard:
            await asyncio.Event().wait()
        return self.clipboard.pop(0)


@dataclass
class Desk:
    """A plugin's context and the servers."""

    ctx: FakePluginContext
    clock: PassingClock
    ports: tuple[int, ...]
    chatgpt: ChatGPTStandIn
    github: GitHubStandIn

    def codex(self) -> CodexLogin:
        settings = CodexSettings(auth_base=self.chatgpt.url, callback_ports=self.ports)
        return CodexLogin(self.ctx, SPECS["openai_codex"], settings)

    def copilot(self) -> CopilotLogin:
        settings = CopilotSettings(github_base=self.github.url, github_api=self.github.url)
        return CopilotLogin(self.ctx, SPECS["github_copilot"], settings)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clock, ports = PassingClock(), free_ports(2)

    def now() -> float:
        return clock.now().timestamp()

    with ChatGPTStandIn(ports, now) as chatgpt, GitHubStandIn(now) as github:
        ctx = FakePluginContext(tmp_path, clock=clock, plugin_id="openai")
        github.api_base = "http://127.0.0.1:9"
        yield Desk(ctx, clock, ports, chatgpt, github)


async def test_a_person_signs_in_to_chatgpt_in_a_browser(desk: Desk) -> None:
    assert await desk.codex().log_in(Person(), None) == "me@example.org"

    file = token_file(desk.ctx.data_dir, "openai_codex")
    tokens = read_tokens(file)
    assert tokens is not None
    assert (tokens.access, tokens.refresh) == (desk.chatgpt.access, desk.chatgpt.refresh)
    assert tokens.details == {"account_id": "account-1"}
    assert tokens.expires_at == desk.clock.now().timestamp() + 3_600
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert desk.ctx.concealed["openai_codex"] == {tokens.access, tokens.refresh}


async def test_an_address_can_be_pasted_if_the_browser_is_elsewhere(desk: Desk) -> None:
    person = Person(clipboard=["me", "http://localhost/auth/callback?code=x&state=another"])
    person.act = lambda page: person.clipboard.append(visit(page, follow=False)[1])

    assert await desk.codex().log_in(person, "browser") == "me@example.org"
    assert person.notes == [
        "this is not the address that the login ends at; paste all of it",
        "this address belongs to another login; paste all of it",
    ]


async def test_only_the_redirect_of_this_sign_in_is_taken(desk: Desk) -> None:
    statuses: list[int] = []

    def attack(page: str) -> None:
        redirect = parse_qs(urlsplit(page).query)["redirect_uri"][0]
        root = redirect.removesuffix("/auth/callback")
        statuses.append(visit(f"{redirect}?code=evil&state=guessed")[0])
        statuses.append(visit(f"{redirect}?code=evil")[0])
        statuses.append(visit(f"{root}/other?code=evil&state=guessed")[0])
        statuses.append(visit(f"{redirect}?code=evil&state=guessed", method="POST")[0])
        statuses.append(visit(page)[0])

    assert await desk.codex().log_in(Person(act=attack), None) == "me@example.org"
    assert statuses == [400, 400, 404, 404, 200]


async def test_a_refusal_is_reported_without_the_words_of_the_service(desk: Desk) -> None:
    desk.chatgpt.allows = False
    with pytest.raises(AuthenticationFailed, match=r"the access was refused \(access_denied\)$"):
        await desk.codex().log_in(Person(), None)

    assert read_tokens(token_file(desk.ctx.data_dir, "openai_codex")) is None


async def test_the_next_port_is_used_if_one_is_taken(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", desk.ports[0])):
        assert await desk.codex().log_in(Person(), None) == "me@example.org"
        with (
            socket.create_server(("127.0.0.1", desk.ports[1])),
            pytest.raises(ConfigError, match=f"tried {desk.ports[0]} and .*sign in with --device"),
        ):
            await desk.codex().log_in(Person(), None)


async def test_an_account_without_a_plan_is_refused(desk: Desk) -> None:
    desk.chatgpt.account = ""
    with pytest.raises(AuthenticationFailed, match="needs a plan with Codex"):
        await desk.codex().log_in(Person(), None)


async def test_a_person_signs_in_to_chatgpt_with_a_code(desk: Desk) -> None:
    desk.chatgpt.pending, desk.chatgpt.interval_s, person = 3, 20, Person()

    assert await desk.codex().log_in(person, "device") == "me@example.org"
    assert person.shown == [(f"{desk.chatgpt.url}/codex/device", "ABCD-EFGH")]
    assert person.notes == ["still waiting; 14 minutes left"]


async def test_a_code_that_nobody_enters_expires(desk: Desk) -> None:
    desk.chatgpt.pending, desk.chatgpt.interval_s = 1_000, 60
    with pytest.raises(AuthenticationFailed, match="the code was not entered in time"):
        await desk.codex().log_in(Person(), "device")

    assert desk.clock.monotonic_s() <= 900


async def test_a_person_signs_in_to_copilot_with_a_code(desk: Desk) -> None:
    desk.github.errors = ["authorization_pending", "slow_down", "authorization_pending"]
    person = Person()

    assert await desk.copilot().log_in(person, None) == "octocat"
    assert person.shown == [(f"{desk.github.url}/login/device", "WDJB-MJHT")]
    assert desk.github.count("/login/oauth/access_token") == 4
    assert desk.clock.monotonic_s() == 5 + 5 + 10 + 10
    tokens = read_tokens(token_file(desk.ctx.data_dir, "github_copilot"))
    assert tokens is not None
    assert (tokens.access, tokens.refresh) == (desk.github.access, desk.github.token)
    assert tokens.details == {"api_base": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("expired_token", "the code has expired"),
        ("access_denied", "the access was refused"),
        ("incorrect_client_credentials", "refused .HTTP 200, incorrect_client_credentials"),
    ],
)
async def test_a_code_that_ends_without_a_token_says_why(
    desk: Desk, error: str, reason: str
) -> None:
    desk.github.errors = [error]
    with pytest.raises(AuthenticationFailed, match=reason):
        await desk.copilot().log_in(Person(), None)


async def test_an_account_without_copilot_is_refused(desk: Desk) -> None:
    desk.github.has_copilot = False
    with pytest.raises(AuthenticationFailed, match="'octocat' has no access to Copilot"):
        await desk.copilot().log_in(Person(), None)
    with pytest.raises(ConfigError, match="leave out --browser"):
        await desk.copilot().log_in(Person(), "browser")


async def test_tokens_are_removed_and_revoked_at_the_end(desk: Desk) -> None:
    file = token_file(desk.ctx.data_dir, "openai_codex")
    await desk.codex().log_in(Person(), None)

    assert await desk.codex().log_out() == ""
    assert desk.chatgpt.revoked == [desk.chatgpt.refresh]
    assert read_tokens(file) is None
    file.replace({"damaged": True})
    assert await desk.codex().log_out() == ""
    assert not file.path.exists()
    assert "/settings/applications" in await desk.copilot().log_out()


async def test_tokens_are_removed_although_the_service_is_away(desk: Desk) -> None:
    await desk.codex().log_in(Person(), None)
    login = desk.codex()
    desk.chatgpt.__exit__()

    assert "could not be revoked" in await login.log_out()
    assert not token_file(desk.ctx.data_dir, "openai_codex").path.exists()
    with pytest.raises(ProviderError, match="no connection could be made"):
        await login.log_in(Person(), "device")


@pytest.mark.parametrize(
    ("garbage", "kind"),
    [
        ((302, {"Location": "http://127.0.0.1:9/stolen"}, b""), ProviderError),
        ((200, {}, b"<html>welcome</html>"), ProviderProtocolError),
        ((200, {}, b'["a list"]'), ProviderProtocolError),
        ((200, {}, b'{"user_code": ["x"], "device_code": 1}'), ProviderProtocolError),
        ((200, {}, b'{"pad": "' + b"x" * 300_000 + b'"}'), ProviderProtocolError),
        ((400, {}, b'{"error": {"code": "secret words of the service"}}'), ProviderError),
        ((429, {}, b"{}"), RateLimited),
        ((503, {}, b"{}"), Overloaded),
    ],
)
@pytest.mark.parametrize("name", ["codex", "copilot"])
async def test_an_unusable_answer_is_a_typed_error_and_stores_nothing(
    desk: Desk, name: str, garbage: tuple[int, dict[str, str], bytes], kind: type[Exception]
) -> None:
    desk.chatgpt.garbage = desk.github.garbage = garbage
    login: ProviderLogin = desk.codex() if name == "codex" else desk.copilot()
    person = Person()
    with pytest.raises(kind) as caught:
        await login.log_in(person, "device")

    assert "secret" not in str(caught.value)
    assert person.shown == []
    assert not list(desk.ctx.data_dir.rglob("*.json"))


@pytest.mark.parametrize(
    "odd",
    [
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "https://github.com\x1b]0;x\x07/login"},
        {"verification_uri": "https://[half"},
        {"verification_uri": "https://github.com/" + "x" * 600},
        {"verification_uri": "http://elsewhere.example/login"},
        {"user_code": "A\x1b[2J"},
        {"user_code": "A" * 600},
    ],
)
async def test_nothing_is_shown_that_a_person_should_not_open(
    desk: Desk, odd: dict[str, str]
) -> None:
    begun = {
        "device_code": "d",
        "user_code": "A-1",
        "verification_uri": f"{desk.github.url}/login/device",
    }
    desk.github.garbage = (200, {}, json.dumps({**begun, **odd}).encode())
    person = Person()
    with pytest.raises(ProviderProtocolError):
        await desk.copilot().log_in(person, None)
    assert person.shown == []


def test_a_number_of_any_size_can_be_read() -> None:
    assert AuthAnswer(200, {"expires_in": 10**400}).seconds("expires_in") is None


@pytest.mark.parametrize("base", ["http://example.org", "ftp://x", "https://user@x", "x"])
def test_people_do_not_sign_in_over_an_unsafe_address(tmp_path: Path, base: str) -> None:
    ctx = FakePluginContext(tmp_path)
    with pytest.raises(ConfigError, match=r"providers.openai_codex.auth_base must be"):
        CodexLogin(ctx, SPECS["openai_codex"], CodexSettings(auth_base=base))


def test_both_are_sign_ins_of_the_contract() -> None:
    assert issubclass(CodexLogin, ProviderLogin)
    assert issubclass(CopilotLogin, ProviderLogin)
