"""Several tabs of one browser: one stream for all, and one decision."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from nanobot_core.testing import Reply, ScriptedCall

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Page, Request, Route, StorageState

    from conftest import Site

    OpenPage = Callable[..., AbstractContextManager[Page]]

pytestmark = pytest.mark.timeout(120)
ANSWERED = "#log > .assistant:not(.live)"
FOLLOWING = "#connection[data-state=connected]"
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def write(page: Page, text: str) -> None:
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.fill("#text", text)
    page.press("#text", "Enter")


class Wire:
    """The streams that the tabs of a page's browser have opened."""

    def __init__(self, page: Page) -> None:
        self.opened: list[Page] = []
        page.context.on("request", self._note)

    def _note(self, request: Request) -> None:
        if "/web/events" in request.url:
            with suppress(ValueError):
                self.opened.append(request.frame.page)


def test_ten_tabs_share_one_stream_and_all_show_the_answer(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["to all tabs"] = Reply(text="Hello, tabs.", gate=gate)
    wire = Wire(page)
    page.goto("/")
    write(page, "to all tabs")
    expect(page.locator(".live")).to_be_visible()
    tabs = [page, *(page.context.new_page() for _ in range(9))]
    for tab in tabs[1:]:
        tab.goto(page.url, wait_until="commit")
    for tab in tabs:
        expect(tab.locator(FOLLOWING)).to_be_attached()
    release()
    for tab in tabs:
        expect(tab.locator(f"{ANSWERED} .text")).to_have_text("Hello, tabs.")
    assert wire.opened == [page]


def test_a_closed_or_hidden_tab_hands_the_stream_over(site: Site, page: Page) -> None:
    wire = Wire(page)
    page.goto("/")
    write(page, "one tab of three")
    expect(page.locator(ANSWERED)).to_have_count(1)
    second, third = page.context.new_page(), page.context.new_page()
    for tab in (second, third):
        tab.goto(page.url)
        expect(tab.locator(FOLLOWING)).to_be_attached()
    with page.context.expect_event("request", lambda request: "/web/events" in request.url):
        page.close()
    leading, other = (second, third) if wire.opened[-1] is second else (third, second)
    write(other, "after the first was closed")
    for tab in (leading, other):
        expect(tab.locator(ANSWERED)).to_have_count(2)
    # Browsers suspend hidden tabs: the one that is looked at takes the stream over.
    leading.evaluate(HIDE, True)
    with other.expect_request("**/web/events*"):
        other.evaluate(HIDE, False)
    write(other, "after the second was hidden")
    for tab in (leading, other):
        expect(tab.locator(ANSWERED)).to_have_count(3)
        expect(tab.locator("#log > .user")).to_have_count(3)


def test_a_silent_stream_is_opened_again_and_one_that_beats_is_not(page: Page) -> None:
    page.add_init_script(
        "const Real = EventSource; window.sources = []; window.EventSource ="
        " class extends Real { constructor(...a) { super(...a); sources.push(this); } }"
    )
    page.clock.install()
    page.goto("/")
    expect(page.locator(FOLLOWING)).to_be_attached()
    for _ in range(3):
        page.clock.fast_forward(30_000)
        page.evaluate("sources[0].dispatchEvent(new MessageEvent('beat', {data: '{}'}))")
    assert page.evaluate("sources.length") == 1
    expect(page.locator("#connection")).to_have_text("")
    page.clock.fast_forward(41_000)
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    page.clock.fast_forward(1_000)
    page.wait_for_function("() => sources.length === 2")
    expect(page.locator(FOLLOWING)).to_be_attached()


@pytest.fixture
def refused_page(site: Site, open_page: OpenPage, signed_in: StorageState) -> Iterator[Page]:
    """A page whose console may report a 404."""
    with open_page(site, signed_in, expected=("404",)) as page:
        yield page


def test_a_question_is_decided_once_whoever_clicks_how_often(
    site: Site, refused_page: Page
) -> None:
    page = refused_page
    arguments = '{"path": "once.txt", "content": "x"}'
    site.model.script.replies["ask me once"] = Reply(
        calls=(ScriptedCall(name="write_file", arguments=arguments),)
    )
    page.goto("/")
    write(page, "ask me once")
    expect(page.locator(".approval")).to_have_count(1)
    second = page.context.new_page()
    second.goto(page.url)
    expect(second.locator(".approval")).to_have_count(1)
    statuses: list[int] = []
    page.context.on(
        "response", lambda one: statuses.append(one.status) if "approvals" in one.url else None
    )
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    second.route("**/web/approvals", hold)
    second.get_by_role("button", name="Deny").click()
    page.get_by_role("button", name="Allow").dblclick()
    for tab in (page, second):
        expect(tab.locator(".approval")).to_have_count(0)
        expect(tab.locator(ANSWERED).last).to_contain_text("It gave")
    assert (site.home / "workspace/once.txt").read_text("utf-8") == "x"
    with second.expect_response("**/web/approvals") as refused:
        late[0].continue_()
    assert refused.value.status == 404
    assert statuses.count(202) == 1
