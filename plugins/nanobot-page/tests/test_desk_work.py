"""Installation of plugins and sign-in to channels, in the browser, against a real gateway."""

from __future__ import annotations

import base64
import hashlib
import json
import queue
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page, StorageState

    from conftest import Site

    Open: TypeAlias = Callable[..., AbstractContextManager[Page]]

pytestmark = pytest.mark.timeout(240)
CHILD_MS = 90_000
"""For what a gateway does in child processes that import and start plugins."""
PLUGIN = """\
from nanobot_core import tool, on
@tool
def ask_acme(city: str) -> str:
    '''Report on one city.'''
    return city
@on.contribute_tools
def contribute_tools(ctx):
    return [ask_acme]
"""
MANIFEST = {
    "id": "acme",
    "schema_version": 1,
    "declarations": [
        {
            "kind": "tools",
            "name": "ask_acme",
            "summary": "",
            "detail": {
                "description": "Report on one city.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
    ],
    "facts": {
        "capabilities": ["rings a <b>bell</b>"],
        "summary": "",
        "hosts": [],
        "requires": [],
        "after": [],
    },
}


@pytest.fixture(scope="module")
def site(desk_site: Site) -> Site:
    return desk_site


@pytest.fixture(scope="module")
def page(site: Site, signed_in: StorageState, open_page: Open) -> Iterator[Page]:
    """One page for all tests, because contexts and processes of Chromium cost the most."""
    with open_page(site, signed_in) as page:
        yield page


def offer(site: Site, version: str) -> None:
    """Write a wheel with a plugin where pip finds it."""
    info = f"nanobot_acme-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: nanobot-acme\nVersion: {version}\n"
    points = "[nanobot]\nacme = nanobot_acme.plugin\n\n[nanobot.manifest]\nacme = nanobot_acme\n"
    files = {
        "nanobot_acme/__init__.py": "",
        "nanobot_acme/plugin.py": PLUGIN,
        "nanobot_acme/nanobot-plugin.json": json.dumps(MANIFEST),
        f"{info}/METADATA": f"{about}Requires-Dist: nanobot-core\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = "".join(
        f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheels = site.home.parent / "wheels"
    with zipfile.ZipFile(wheels / f"nanobot_acme-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def ask_for(page: Page, name: str) -> None:
    page.get_by_label("Package to install").fill(name)
    press(page, "Show what it would change")


def test_a_plugin_is_installed_after_its_plan_was_seen(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    pytest.importorskip("pip", reason="pip is not installed here")
    offer(site, "1.0")
    page.goto("/desk/plugins")
    ask_for(page, "nanobot-acme")
    says = page.get_by_role("status")
    expect(says).to_contain_text("Finding out")
    page.reload()
    second = page.context.new_page()
    second.goto("/desk/install")
    for each in (page, second):
        row = each.get_by_role("row", name="nanobot-acme")
        expect(row).to_contain_text("not installed1.0", timeout=CHILD_MS)
        expect(each.get_by_text("rings a <b>bell</b>")).to_be_visible()
    check_access(page)

    press(page, "Install")
    expect(says).to_contain_text("Installing")
    second.goto("/desk/plugins")
    ask_for(second, "nanobot-other")
    expect(second.get_by_role("alert")).to_contain_text("Another installation is in progress")
    for each in (page, second):
        said = each.get_by_role("status").first
        expect(said).to_contain_text("nanobot-acme is installed", timeout=CHILD_MS)
        expect(each.get_by_role("heading", name="acme")).to_be_visible()
    check_access(page)
    second.close()
    page.get_by_role("link", name="All plugins").click()
    expect(page.get_by_role("button", name="Reload acme")).to_be_visible()


def test_what_is_not_a_name_is_refused_in_words(
    page: Page, check_access: Callable[[Page], None]
) -> None:
    page.goto("/desk/plugins")
    for name in ("--index-url=http://x", "../x", "git+https://x/y", "a <b>", "x @ file:///x"):
        ask_for(page, name)
        says = page.get_by_role("status")
        expect(says).to_contain_text(f"cannot install '{name}'")
        expect(page.get_by_label("Package to install")).to_have_value(name)
    check_access(page)


def test_a_sign_in_shows_an_address_and_asks(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    page.goto("/desk")
    page.get_by_role("link", name="Sign in to pigeon").click()
    press(page, "Sign in")
    expect(page.get_by_role("link", name="https://pigeons.example/link")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("Which pigeon <b>is</b> it?")
    answer = page.get_by_label("Your answer")
    answer.type("Char")
    with page.expect_response("**/desk/sign-in/state*"):
        pass
    with page.expect_response("**/desk/sign-in/state*"):
        pass
    expect(answer).to_be_focused()
    second = page.context.new_page()
    second.goto("/desk/sign-in?channel=pigeon")
    check_access(second)
    answer.type("lie")
    press(page, "Send")
    for each in (page, second):
        expect(each.get_by_role("status")).to_contain_text("Signed in: the pigeon Charlie")
    press(second, "Sign in again")
    second.get_by_label("Your answer").fill("Bob")
    press(second, "Send")
    expect(second.get_by_role("status")).to_contain_text("Not signed in: there is no pigeon 'Bob'")
    second.close()
    # Its channel that has signed in took away the inbox of the one that runs.
    page.goto("/desk/panel?plugin=house&id=loft")
    press(page, "Write hello")
    expect(page.get_by_role("alert")).to_contain_text("the plugin 'house' failed: AssertionError")
    page.goto("/desk/plugins")
    press(page, "Reload house")
    expect(page.get_by_role("status")).to_contain_text("reloaded: house")
    page.goto("/desk/panel?plugin=house&id=loft")
    press(page, "Write hello")
    expect(page.get_by_role("status")).to_have_text("Sent: hello.")
    page.goto("/desk")
    expect(page.get_by_role("row", name="pigeon")).to_contain_text("running")


class Bridge:
    """The bridge of WhatsApp, as the channel sees it.

    Attributes:
        url: its address.
        frames: what it sends to the next client; ``None`` hangs up.
        left: set when a client has gone.
    """

    def __init__(self, port: int) -> None:
        self.url = f"ws://127.0.0.1:{port}"
        self.frames = queue.Queue[dict[str, str] | None]()
        self.left = threading.Event()


@contextmanager
def running_bridge() -> Iterator[Bridge]:
    server_of = pytest.importorskip("websockets.sync.server").serve
    from websockets.exceptions import ConnectionClosed

    def serve(client: object) -> None:
        client.recv()  # type: ignore[attr-defined] # the token
        try:
            while (frame := bridge.frames.get(timeout=100)) is not None:
                client.send(json.dumps(frame))  # type: ignore[attr-defined]
        except ConnectionClosed:
            pass
        bridge.left.set()

    with server_of(serve, "127.0.0.1", 0) as server:
        bridge = Bridge(server.socket.getsockname()[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield bridge
        finally:
            bridge.frames.put(None)
            server.shutdown()
            thread.join()


def test_a_phone_is_linked_with_a_code_that_is_renewed(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    pytest.importorskip("nanobot_whatsapp")
    with running_bridge() as bridge:
        file = site.home / "config.json"
        config = json.loads(file.read_text("utf-8"))
        section = {"enabled": False, "bridge_url": bridge.url, "bridge_token": "planted-token"}
        config["channels"]["whatsapp"] = {**section, "allow_from": ["*"]}
        file.write_text(json.dumps(config), "utf-8")
        page.goto("/desk/settings")
        press(page, "Apply the file")
        page.goto("/desk")
        page.get_by_role("link", name="whatsapp").click()
        press(page, "Sign in")
        expect(page.get_by_role("status")).to_contain_text("for a code of the bridge")
        picture = page.get_by_role("img", name="QR code")
        bridge.frames.put({"type": "qr", "qr": "2@first"})
        expect(picture).to_be_visible()
        first = picture.inner_html()
        page.reload()
        expect(picture).to_be_visible()
        assert picture.inner_html() == first
        bridge.frames.put({"type": "qr", "qr": "2@second"})
        expect(picture).to_be_visible()
        page.wait_for_function(
            "first => document.querySelector('.code-picture')?.innerHTML !== first", arg=first
        )
        check_access(page)
        assert "planted-token" not in page.content()
        bridge.frames.put({"type": "status", "status": "connected"})
        expect(page.get_by_role("status")).to_contain_text("linked to a phone now")
        expect(picture).to_have_count(0)
