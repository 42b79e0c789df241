"""What goes wrong around the page: killed gateways, full disks, lost browsers, proxies."""

from __future__ import annotations

import base64
import hmac
import json
import os
import resource
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from nanobot_core.testing import Reply, ScriptedCall

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Site

pytestmark = pytest.mark.timeout(120)
ANSWERED = "#log > .assistant:not(.live)"
TEXTS = "#log > article .text, #log > article .bubble"
HOOK_KEY = b"0123456789abcdef0123456789abcdef"
OpenPage = Callable[..., AbstractContextManager[Any]]
MEGABYTE = 1024 * 1024


def free_port() -> int:
    """Return a port that stays free while the gateway is away.

    Systems give those above 32767 to programs that connect, or ask for any.
    """
    for port in range(20_000 + os.getpid() % 10_000, 32_768):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    pytest.fail("all ports are taken")


@pytest.fixture(scope="module")
def fragile(
    tmp_path_factory: pytest.TempPathFactory,
    run_site: Callable[..., AbstractContextManager[Site]],
) -> Iterator[Site]:
    """A gateway that these tests may kill, with guests who write by HTTP."""
    gateway: dict[str, Any] = {"port": free_port()}
    gateway["http"] = {"requests_per_minute": 100_000, "trusted_proxies": ["127.0.0.2"]}
    hook = {
        "enabled": True,
        "secret": f"whsec_{base64.b64encode(HOOK_KEY).decode()}",
        # No one listens there: what is sent to guests is not delivered.
        "callback_url": "http://127.0.0.1:9/",
        "allow_from": ["guest"],
    }
    home = tmp_path_factory.mktemp("fragile") / "home"
    channels = {"webhook": hook, "web": {"rate_limit": 10_000}}
    with run_site(home, gateway=gateway, channels=channels) as site:
        yield site


def write(page: Page, text: str) -> None:
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.fill("#text", text)
    page.press("#text", "Enter")


def texts(page: Page) -> list[str]:
    return page.locator(TEXTS).all_inner_texts()


def test_a_killed_gateway_loses_and_doubles_nothing(fragile: Site, open_page: OpenPage) -> None:
    gate, release = fragile.model.gate()
    fragile.model.script.replies["during"] = Reply(text="Said after all.", gate=gate)
    with open_page(fragile, expected=("ERR_",)) as page:
        page.goto("/")
        write(page, "before")
        expect(page.locator(ANSWERED)).to_have_count(1)
        write(page, "during")
        expect(page.locator(".live")).to_be_visible()
        fragile.kill()
        expect(page.locator("#connection")).to_contain_text("Connection lost")
        write(page, "while it is away")
        unsent = page.locator(".unsent")
        expect(unsent).to_contain_text("not sent yet; waits for the gateway")
        release()
        fragile.start()
        expect(page.locator(ANSWERED)).to_have_count(3)
        expect(page.locator("#connection")).to_have_text("")
        expect(page.locator(".unsent, .live")).to_have_count(0)
        wanted = ["before", "You said: before", "during", "Said after all."]
        wanted += ["while it is away", "You said: while it is away"]
        assert texts(page) == wanted
        page.reload()
        assert texts(page) == wanted


def test_an_unsent_message_survives_a_reload_and_can_be_taken_back(
    fragile: Site, open_page: OpenPage
) -> None:
    with open_page(fragile, expected=("ERR_",)) as page:
        page.goto("/")
        write(page, "first")
        expect(page.locator(ANSWERED)).to_have_count(1)
        # The page loads, and what it sends does not arrive.
        page.route("**/web/messages", lambda route: route.abort("connectionreset"))
        write(page, "second")
        write(page, "third")
        expect(page.locator(".unsent")).to_have_count(2)
        page.locator(".unsent", has_text="third").get_by_role("button").click()
        expect(page.locator("#text")).to_have_value("third")
        page.reload()
        expect(page.locator(".unsent")).to_have_text(
            "secondnot sent yet; waits for the gatewayTake back"
        )
        page.unroute("**/web/messages")
        expect(page.locator(ANSWERED)).to_have_count(2)
        assert texts(page) == ["first", "You said: first", "second", "You said: second"]
        expect(page.locator("#text")).to_have_value("third")


@contextmanager
def largest_file(site: Site, size: int) -> Iterator[None]:
    """Let the gateway write no file that is larger."""
    assert site.process is not None
    former = resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, former)


def test_a_full_disk_is_reported_and_the_upload_can_be_repeated(
    fragile: Site, open_page: OpenPage
) -> None:
    content = os.urandom(3 * MEGABYTE)
    file = {"name": "big.bin", "mimeType": "application/octet-stream", "buffer": content}
    with open_page(fragile, expected=("507",)) as page:
        page.goto("/")
        page.wait_for_selector("#connection[data-state]", state="attached")
        with largest_file(fragile, MEGABYTE * 3 // 2):
            page.set_input_files("#pick", [file])
            expect(page.locator("#alarms")).to_contain_text("no room for the file")
        write(page, "not without it")
        expect(page.locator("#alarms")).to_contain_text("not uploaded yet")
        expect(page.locator("#text")).to_have_value("not without it")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#chips .ready")).to_have_count(1)
        page.press("#text", "Enter")
        expect(page.locator(".user[data-index] a.file")).to_contain_text("big.bin")
        address = page.locator(".user a.file").get_attribute("href")
        assert page.context.request.get(f"{fragile.url}{address}").body() == content


def test_a_browser_that_disappears_during_an_upload_leaves_nothing_behind(fragile: Site) -> None:
    place = httpx.URL(fragile.url)
    with httpx.Client(base_url=fragile.url, cookies=fragile.cookie(), trust_env=False) as owner:
        token = owner.get("/").text.partition('data-token="')[2].partition('"')[0]
        proof = {"x-nanobot-token": token}
        upload = {"id": str(uuid.uuid4()), "at": "0", "size": "9", "name": "half.txt"}
        sent = owner.post("/web/files", params=upload, content=b"abc", headers=proof)
        assert sent.json() == {"at": 3}
        [cookie] = owner.cookies.items()
        query = httpx.QueryParams({**upload, "at": "3"})
        with socket.create_connection((place.host, place.port or 0)) as line:
            line.sendall(
                f"POST /web/files?{query} HTTP/1.1\r\nHost: {place.host}:{place.port}\r\n"
                f"Cookie: {cookie[0]}={cookie[1]}\r\nX-Nanobot-Token: {token}\r\n"
                "Content-Length: 6\r\n\r\nde".encode()
            )
        again = {**upload, "at": "3"}
        for piece, have in ((b"", 3), (b"def", 6), (b"", 6)):
            found = owner.post("/web/files", params=again, content=piece, headers=proof)
            assert found.json() == {"at": have}
        again["at"] = "6"
        done = owner.post("/web/files", params=again, content=b"ghi", headers=proof).json()
        assert owner.get("/web/files", params={"id": done["file"]}).content == b"abcdefghi"
    assert list((fragile.home / "plugins/page/uploads").iterdir()) == []
    assert "Traceback" not in fragile.log()


def ask_as_guest(site: Site, text: str) -> None:
    """Write as a guest, by a signed request (Standard Webhooks 1.0)."""
    pytest.importorskip("nanobot_webhook")
    event = {"chat_id": "kitchen", "sender_id": "guest", "content": text}
    body = json.dumps({"type": "message.created", "data": event})
    key, at = str(uuid.uuid4()), str(int(time.time()))
    proof = hmac.digest(HOOK_KEY, f"{key}.{at}.{body}".encode(), "sha256")
    signature = f"v1,{base64.b64encode(proof).decode()}"
    headers = {"webhook-id": key, "webhook-timestamp": at, "webhook-signature": signature}
    answer = httpx.post(f"{site.url}/webhook", content=body, headers=headers, trust_env=False)
    assert answer.json() == {"stored": True}, answer.text


def test_the_owner_is_asked_live_about_calls_of_guests(fragile: Site, open_page: OpenPage) -> None:
    call = ScriptedCall(name="write_file", arguments='{"path": "g.txt", "content": "from a guest"}')
    fragile.model.script.replies["I am a guest"] = Reply(calls=(call,))
    ask_as_guest(fragile, "hello")
    with open_page(fragile) as page:
        page.goto("/chat?s=webhook:kitchen")
        expect(page.locator(ANSWERED)).to_contain_text("You said: hello")
        own = page.context.new_page()
        own.goto("/")
        write(own, "here I am")  # so that the owner is asked in this chat
        expect(own.locator(ANSWERED)).to_have_count(1)
        ask_as_guest(fragile, "I am a guest")
        for each in (page, own):
            expect(each.locator(".approval")).to_contain_text("Guest guest on webhook")
            expect(each.locator(".approval pre")).to_contain_text("from a guest")
        for path in ("/web/snapshot?s=webhook:kitchen", "/web/events", "/chat?s=webhook:kitchen"):
            answer = httpx.get(f"{fragile.url}{path}", trust_env=False)
            assert answer.status_code in (303, 401)
            assert "approval" not in answer.text
        page.get_by_role("button", name="Deny").click()
        for each in (page, own):
            expect(each.locator(".approval")).to_have_count(0)
        expect(page.locator(ANSWERED).last).to_contain_text("not approved")


def test_a_question_outlives_the_gateway_and_is_answered_once(
    fragile: Site, open_page: OpenPage
) -> None:
    call = ScriptedCall(name="write_file", arguments='{"path": "kept.txt", "content": "yes"}')
    fragile.model.script.replies["keep it"] = Reply(calls=(call,))
    with open_page(fragile, expected=("ERR_",)) as page:
        page.goto("/")
        write(page, "keep it")
        expect(page.locator(".approval")).to_be_visible()
        fragile.kill()
        fragile.start()
        expect(page.locator("#connection")).to_have_text("")
        expect(page.locator(".live")).to_be_visible()
        page.get_by_role("button", name="Allow").click()
        expect(page.locator(".approval")).to_have_count(0)
        expect(page.locator(ANSWERED).last).to_contain_text("It gave")
        assert (fragile.home / "workspace/kept.txt").read_text("utf-8") == "yes"
        assert len(texts(page)) == 2


FORWARDED = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}


def sign_in(site: Site, source: str) -> httpx.Response:
    """Sign in as a proxy at the address `source` passes it on."""
    code = site.link().partition("#code=")[2]
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, trust_env=False) as proxy:
        return proxy.post(f"{site.url}/login", json={"code": code}, headers=FORWARDED)


def test_the_cookie_is_secure_behind_a_trusted_proxy_only(fragile: Site) -> None:
    trusted = sign_in(fragile, "127.0.0.2").headers["set-cookie"]
    port = httpx.URL(fragile.url).port
    assert trusted.startswith(f"__Host-nanobot_{port}=")
    assert "; Secure" in trusted
    assert "Path=/;" in trusted
    assert "Domain" not in trusted
    forged = sign_in(fragile, "127.0.0.1").headers["set-cookie"]
    assert forged.startswith(f"nanobot_{port}=")
    assert "Secure" not in forged


@pytest.mark.parametrize(
    ("headers", "status", "setting"),
    [
        ({"origin": "https://bot.example.org"}, 403, "gateway.http.allowed_origins"),
        ({"host": "bot.example.org"}, 400, "gateway.http.allowed_hosts"),
    ],
)
def test_refusals_behind_a_proxy_name_the_setting(
    fragile: Site, headers: dict[str, str], status: int, setting: str
) -> None:
    answer = httpx.post(f"{fragile.url}/login", json={}, headers=headers, trust_env=False)
    assert answer.status_code == status
    assert setting in answer.text
