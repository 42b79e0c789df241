"""Guests of the page: they have chats of their own, and nothing else."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from pydantic import ValidationError

from nanobot_core.testing import FakeGateway, FakePluginContext, Reply, ScriptedCall
from nanobot_page.app import is_open, routes
from nanobot_page.keys import guest_of, is_of, make_key
from nanobot_page.settings import WebSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from conftest import Site

pytestmark = pytest.mark.timeout(120)
ALLOWED = {
    ("GET", "/"),
    ("GET", "/chat"),
    ("POST", "/logout"),
    ("GET", "/web/events"),
    ("GET", "/web/export"),
    ("GET", "/web/files"),
    ("POST", "/web/files"),
    ("GET", "/web/history"),
    ("POST", "/web/messages"),
    ("GET", "/web/sessions"),
    ("POST", "/web/sessions"),
    ("GET", "/web/since"),
    ("GET", "/web/snapshot"),
    ("POST", "/web/stop"),
}
UPLOAD = b"what anna attached"
LONG = "a password that is long enough"
LIMIT_S = 60


class Visitor:
    """Someone who is signed in, without a browser."""

    def __init__(self, site: Site, **proof: str) -> None:
        self.site = site
        cookies = {} if proof else site.cookie()
        self.client = httpx.Client(
            base_url=site.url, cookies=cookies, trust_env=False, timeout=LIMIT_S
        )
        if proof:
            answer = self.client.post("/login", json=proof)
            assert answer.status_code == 200, answer.text
        page = self.client.get("/").text
        self.key = page.partition('data-key="')[2].partition('"')[0]
        token = page.partition('data-token="')[2].partition('"')[0]
        self.proof = {"x-nanobot-token": token}

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.client.post(path, json=body, headers=self.proof)

    def send(self, text: str, session: str = "", **body: object) -> httpx.Response:
        name = str(uuid.uuid4())
        session = session or self.key
        return self.post("/web/messages", id=name, session=session, text=text, **body)

    def shown(self, session: str = "") -> str:
        answer = self.client.get("/web/snapshot", params={"s": session or self.key})
        return str(answer.json()["html"])

    def upload(self) -> str:
        query = {"id": str(uuid.uuid4()), "at": "0", "size": str(len(UPLOAD)), "name": "a.txt"}
        answer = self.client.post("/web/files", params=query, content=UPLOAD, headers=self.proof)
        return str(answer.json()["file"])

    def follow(self, until: Callable[[str], object]) -> list[str]:
        """Read the stream of events until a line is as wanted, and return all lines."""
        found: list[str] = []
        with self.client.stream("GET", "/web/events") as stream:
            for line in stream.iter_lines():
                found.append(line)
                if until(line):
                    break
        return found


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(site: Site) -> Iterator[Callable[..., Visitor]]:
    """Signs a guest in, or the owner."""
    visitors: list[Visitor] = []

    def visit(name: str = "") -> Visitor:
        proof = {"name": name, "password": f"the password of {name}"} if name else {}
        visitors.append(Visitor(site, **proof))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.client.close()


def wait_for_text(visitor: Visitor, text: str) -> None:
    visitor.site.until(lambda: text in visitor.shown())


def test_guests_get_403_on_every_route_of_the_owner(visit: Visit, tmp_path: Path) -> None:
    table = {
        (method, route.path)
        for route in routes(FakePluginContext(tmp_path, settings={}, gateway=FakeGateway()))
        for method in (route.methods or set()) - {"HEAD"}
        if not is_open(route.path)
    }
    assert table > ALLOWED
    owners = table - ALLOWED
    assert {("POST", "/web/approvals"), ("GET", "/setup"), ("GET", "/logins")} < owners
    anna = visit("anna")
    for method, path in sorted(owners):
        answer = anna.client.request(method, path, headers=anna.proof, json={})
        assert answer.status_code == 403, (method, path)
    assert anna.client.get("/desk/unknown").status_code == 403


def test_a_guest_finds_only_the_own_chats_and_files(visit: Visit) -> None:
    anna, bert, owner = visit("anna"), visit("bert"), visit()
    assert anna.send("a pelican of anna", files=[anna.upload()]).status_code == 202
    assert owner.send("a pelican of the owner").status_code == 202
    for visitor in (anna, owner):
        wait_for_text(visitor, "You said: a pelican")
    [file] = {part[:16] for part in anna.shown().split("/web/files?id=")[1:]}
    assert anna.client.get("/web/files", params={"id": file}).content == UPLOAD
    for stranger, key in ((bert, anna.key), (bert, owner.key), (anna, owner.key)):
        for path in ("/web/snapshot", "/web/export", "/web/history", "/chat"):
            query = {"s": key, "before": "9"}
            assert stranger.client.get(path, params=query).status_code == 404, path
        assert stranger.send("mine now", session=key).status_code == 404
        assert stranger.post("/web/stop", session=key).status_code == 404
        for do in ("rename", "delete", "branch", "retry"):
            changed = stranger.post("/web/sessions", session=key, do=do, title="x", index=0)
            assert changed.status_code == 404, do
        listed = stranger.client.get("/web/sessions", params={"q": "pelican"}).text
        assert key not in listed
        assert key not in stranger.client.get("/").text
    assert bert.client.get("/web/files", params={"id": file}).status_code == 404
    assert bert.send("", files=[file]).status_code == 404
    assert anna.key in anna.client.get("/web/sessions", params={"q": "pelican"}).text
    assert owner.client.get("/web/files", params={"id": file}).content == UPLOAD
    assert "a pelican of anna" in owner.shown(anna.key)
    assert owner.send("into the chat of anna", session=anna.key).status_code == 404
    branch = anna.post("/web/sessions", session=anna.key, do="branch", index=1).json()["s"]
    assert "a pelican of anna" in anna.shown(branch)
    assert guest_of(branch) == "anna"


def test_a_guest_never_sees_an_approval_card(site: Site, visit: Visit) -> None:
    site.model.script.replies["keep it"] = Reply(
        calls=(ScriptedCall(name="write_file", arguments='{"path": "g.txt", "content": "x"}'),)
    )
    anna, owner = visit("anna"), visit()
    owner.send("here I am")  # the owner is asked where they last wrote
    wait_for_text(owner, "You said: here I am")
    anna.send("keep it")
    wait_for_text(owner, "Approval needed")
    assert "Guest guest:anna on web" in owner.shown()
    assert "Approval needed" in owner.shown(anna.key)
    card = owner.shown().partition('data-question="')[2]
    question, digest = card.partition('"')[0], card.partition('data-digest="')[2].partition('"')[0]
    assert "Approval needed" not in anna.shown()
    answer = {"question": question, "digest": digest, "allowed": True}
    assert anna.post("/web/approvals", **answer).status_code == 403
    seen: list[str] = []
    begun = threading.Event()

    def is_over(line: str) -> bool:
        begun.set()
        return '"busy": false' in line

    def read() -> None:
        seen.extend(anna.follow(is_over))

    reading = threading.Thread(target=read)
    reading.start()
    assert begun.wait(LIMIT_S)
    owner.send("a secret of the owner")
    wait_for_text(owner, "You said: a secret")
    assert owner.post("/web/approvals", **{**answer, "allowed": False}).status_code == 202
    reading.join(LIMIT_S)
    assert not reading.is_alive()
    for unseen in (question, owner.key, "secret of the owner", "Approval"):
        assert not any(unseen in line for line in seen), unseen


def test_a_removed_guest_is_out_at_once(site: Site, visit: Visit) -> None:
    # No other test signs in as this one, because tests run in any order.
    gone, bert = visit("gone"), visit("bert")
    begun = threading.Event()
    reading = threading.Thread(target=lambda: gone.follow(lambda line: begun.set()))
    reading.start()
    assert begun.wait(LIMIT_S)
    file = site.home / "config.json"
    config = json.loads(file.read_text("utf-8"))
    del config["channels"]["web"]["guests"]["gone"]
    file.write_text(json.dumps(config), "utf-8")
    site.command("gateway", "reload")
    reading.join(LIMIT_S)
    assert not reading.is_alive()
    assert gone.client.get("/web/since").status_code == 401
    assert bert.client.get("/web/since").status_code == 200
    again = gone.client.post("/login", json={"name": "gone", "password": "the password of gone"})
    assert again.status_code == 401


def test_a_guest_signs_in_with_name_and_password_and_chats(site: Site, browser: Browser) -> None:
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.set_default_timeout(LIMIT_S * 1_000)
    page.goto("/login")
    page.get_by_label("Or sign in with a name and a password").fill("Bert")
    page.get_by_label("Password", exact=True).fill("the password of bert")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.fill("#text", "hello")
    page.press("#text", "Enter")
    page.wait_for_selector("#log > .assistant:not(.live)")
    assert "You said: hello" in page.inner_text("#log > .assistant")
    assert page.get_by_role("link", name="Desk").count() == 0
    assert page.locator("#model").count() == 0
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    context.close()


@pytest.mark.parametrize("guests", [{"owner": LONG}, {"a.b": LONG}, {"": LONG}, {"anna": "short"}])
def test_guests_with_odd_names_or_short_passwords_are_refused(guests: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="guests"):
        WebSettings.model_validate({"guests": guests})


def test_the_key_of_a_chat_names_its_guest() -> None:
    for guest in ("", "anna", "an-na_1"):
        key = make_key(guest)
        assert is_of(key, guest)
        assert guest_of(key) == guest
        assert not is_of(key, "bert")
    for odd in (
        "web:",
        "web:.abcdefgh",
        "web:bert.",
        "web:bert.anna.abcdefgh",
        "cli:bert.abcdefgh",
    ):
        assert guest_of(odd) == ""
        assert not is_of(odd)
