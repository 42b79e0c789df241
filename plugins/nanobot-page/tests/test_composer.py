"""The field in which messages are written: files, commands, models, steering, the keyboard."""

from __future__ import annotations

import io
import wave
from typing import TYPE_CHECKING

import pytest

from nanobot_core.testing import Reply, ScriptedCall

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from playwright.sync_api import Page, Route, StorageState

    from conftest import Site

    OpenPage = Callable[..., AbstractContextManager[Page]]

pytestmark = pytest.mark.timeout(120)
ANSWERED = "#log > .assistant:not(.live)"
GIVE = """([how, names]) => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File([`content of ${name}`], name));
  const target = document.getElementById("text");
  target.dispatchEvent(how === "paste"
    ? new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true})
    : new DragEvent(how, {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def write(page: Page, text: str) -> None:
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.fill("#text", text)
    page.press("#text", "Enter")


def test_files_are_pasted_and_dropped_and_one_is_removed(site: Site, page: Page) -> None:
    page.goto("/")
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.evaluate(GIVE, ["paste", ["pasted.txt"]])
    page.evaluate(GIVE, ["dragover", []])
    expect(page.locator("body.dropping")).to_have_count(1)
    page.evaluate(GIVE, ["drop", ["one.txt", "two.txt", "one.txt"]])
    expect(page.locator("body.dropping")).to_have_count(0)
    expect(page.locator("#chips .ready")).to_have_count(4)
    page.get_by_role("button", name="Remove two.txt").click()
    write(page, "four files")
    names = page.locator(".user[data-index] a.file")
    expect(names).to_have_text(["pasted.txt", "one.txt", "one.txt"])
    for link in names.all():
        answer = page.context.request.get(f"{site.url}{link.get_attribute('href')}")
        assert answer.text() == f"content of {link.inner_text()}"
    expect(page.locator("#chips > li")).to_have_count(0)
    expect(page.locator("#title")).to_have_text("four files")


def test_an_interrupted_upload_is_continued_and_arrives_once(site: Site, page: Page) -> None:
    pieces = 0

    def lose_the_second_answer(route: Route) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 2:
            route.fetch()  # it arrives, and the page does not learn it
            route.abort("connectionreset")
        else:
            route.continue_()

    content = bytes(range(256)) * 10_000
    page.goto("/")
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.route("**/web/files?*", lose_the_second_answer)
    page.set_input_files("#pick", {"name": "b.bin", "mimeType": "x/y", "buffer": content})
    expect(page.locator("#chips .ready")).to_have_count(1)
    write(page, "in pieces")
    link = page.locator(".user[data-index] a.file")
    expect(link).to_have_count(1)
    answer = page.context.request.get(f"{site.url}{link.get_attribute('href')}")
    assert answer.body() == content
    assert pieces >= 4


def sound() -> bytes:
    found = io.BytesIO()
    with wave.open(found, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(bytes(8_000))
    return found.getvalue()


def test_audio_can_be_played(page: Page) -> None:
    page.goto("/")
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.set_input_files("#pick", {"name": "v.wav", "mimeType": "audio/wav", "buffer": sound()})
    expect(page.locator("#chips .ready")).to_have_count(1)
    write(page, "listen")
    player = page.locator(".user[data-index] audio")
    expect(player).to_have_attribute("aria-label", "v.wav")
    length = player.evaluate(
        "(audio) => new Promise((done) => {"
        " audio.onloadedmetadata = () => done(audio.duration); audio.load(); audio.play(); })"
    )
    assert length == pytest.approx(0.5)


def test_the_next_turn_uses_the_chosen_model(site: Site, page: Page) -> None:
    page.goto("/")
    write(page, "before the choice")
    expect(page.locator(ANSWERED)).to_have_count(1)
    page.locator(".menu summary").click()
    page.select_option("#model", "other")
    expect(page.locator(".notice")).to_contain_text("other")
    page.press("body", "Escape")
    expect(page.locator("#model")).to_be_hidden()
    write(page, "after the choice")
    expect(page.locator(ANSWERED)).to_have_count(2)
    models = [
        request.body["model"]
        for request in site.model.requests
        if "the choice" in str(request.body["messages"][-1]["content"])
    ]
    assert models == ["m", "m2"]
    page.reload()
    expect(page.locator("#model option").first).to_have_text("other")


def test_commands_are_chosen_with_the_keyboard_alone(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["still working"] = Reply(text="Done.", gate=gate)
    page.goto("/")
    write(page, "still working")
    expect(page.locator("#stop")).to_be_visible()
    page.keyboard.type("/")
    options = page.locator("#options li")
    expect(options.first).to_have_attribute("aria-selected", "true")
    count = options.count()
    assert count > 5
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    expect(page.locator("#text")).to_have_attribute("aria-activedescendant", f"option-{count - 1}")
    page.keyboard.press("Escape")  # closes the list, and does not stop the turn
    expect(page.locator("#options")).to_be_hidden()
    expect(page.locator("#stop")).to_be_visible()
    page.keyboard.type("statu")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#text")).to_have_value("/status ")
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_contain_text("/status")
    release()
    expect(page.locator(ANSWERED)).to_contain_text("Done.")


def test_a_message_joins_the_turn_and_says_so(site: Site, page: Page) -> None:
    first, release_first = site.model.gate()
    second, release_second = site.model.gate()
    call = ScriptedCall(name="list_dir", arguments='{"path": "."}')
    site.model.script.replies["begin the work"] = Reply(calls=(call,), gate=first)
    site.model.script.replies["and one more thing"] = Reply(text="Both done.", gate=second)
    page.goto("/")
    write(page, "begin the work")
    expect(page.locator(".live")).to_be_visible()
    write(page, "and one more thing")
    joined = page.locator("#log > .user", has_text="and one more thing")
    expect(joined.locator(".sent")).to_have_text("waiting")
    release_first()
    expect(joined.locator(".sent")).to_have_text("added to this answer")
    expect(page.locator("#stop")).to_be_visible()
    release_second()
    expect(page.locator(ANSWERED).last).to_contain_text("Both done.")
    expect(page.locator("#log > .user")).to_have_count(2)
    expect(page.locator(".sent")).to_have_count(0)


def test_stop_is_a_button_too(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["never ends"] = Reply(text="never", gate=gate)
    page.goto("/")
    write(page, "never ends")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator(".live")).to_have_count(0)
    release()


def test_a_stopped_turn_takes_its_question_away(site: Site, page: Page) -> None:
    call = ScriptedCall(name="write_file", arguments='{"path": "s.txt", "content": "x"}')
    site.model.script.replies["ask and stop"] = Reply(calls=(call,))
    page.goto("/")
    write(page, "ask and stop")
    expect(page.locator(".approval")).to_be_visible()
    page.press("#text", "Escape")
    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator("#stop")).to_be_hidden()
    assert not (site.home / "workspace/s.txt").exists()


SMALL = """() => {
  const fields = "input, select, textarea";
  return [...document.querySelectorAll(`button, .button, summary, ${fields}`)]
    .filter((each) => each.checkVisibility() && !each.matches(".hidden-text"))
    .filter((each) => each.getBoundingClientRect().height < 44
      || (each.matches(fields) && parseFloat(getComputedStyle(each).fontSize) < 16))
    .map((each) => each.outerHTML);
}"""
"""What a finger does not hit, or makes a phone zoom."""


def test_a_phone_is_used_with_a_finger(
    site: Site, open_page: OpenPage, signed_in: StorageState
) -> None:
    call = ScriptedCall(name="list_dir", arguments='{"path": "."}')
    site.model.script.replies["two lines"] = Reply(text="Both.", calls=(call,), reasoning="Hm.")
    phone = {"width": 390, "height": 800}
    with open_page(site, signed_in, viewport=phone, has_touch=True, is_mobile=True) as page:
        page.goto("/")
        page.wait_for_selector("#connection[data-state]", state="attached")
        page.locator("#text").tap()
        page.keyboard.type("on")
        page.keyboard.press("Enter")
        page.keyboard.type("two lines")
        expect(page.locator("#text")).to_have_value("on\ntwo lines")
        page.get_by_role("button", name="Send").tap()
        expect(page.locator(ANSWERED).last).to_contain_text("It gave")
        page.locator(".menu summary").tap()
        expect(page.locator("#model")).to_be_visible()
        assert page.evaluate(SMALL) == []
        page.locator(".menu summary").tap()
        page.locator("#open-chats").tap()
        expect(page.locator("#search")).to_be_visible()
        assert page.evaluate(SMALL) == []


def test_a_phone_without_a_mouse_can_do_everything(
    site: Site, open_page: OpenPage, signed_in: StorageState
) -> None:
    call = ScriptedCall(name="list_dir", arguments='{"path": "."}')
    site.model.script.replies["by keyboard"] = Reply(text="Let me see.", calls=(call,))
    size = {"width": 360, "height": 740}
    with open_page(site, signed_in, viewport=size) as page:
        page.goto("/")
        page.wait_for_selector("#connection[data-state]", state="attached")
        expect(page.locator("#text")).to_be_focused()
        page.keyboard.type("by keyboard")
        page.keyboard.press("Enter")
        expect(page.locator(ANSWERED).last).to_contain_text("It gave")
        expect(page.locator("#text")).to_be_focused()
        page.set_viewport_size({"width": 1280, "height": 740})
        expect(page.locator("#side")).to_be_visible()
        expect(page.locator("#text")).to_be_focused()
        page.set_viewport_size({"width": 360, "height": 740})
        expect(page.locator("#side")).to_be_hidden()
        tool = page.locator("details.tool summary")
        for _ in range(30):
            page.keyboard.press("Shift+Tab")
            if tool.evaluate("(summary) => summary === document.activeElement"):
                break
        page.keyboard.press("Enter")
        expect(page.locator("details.tool pre").first).to_be_visible()
        page.locator("#open-chats").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#side")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#side")).to_be_hidden()
        expect(page.locator("#open-chats")).to_be_focused()
        page.keyboard.press("Enter")
        page.locator("#search").focus()
        page.keyboard.type("by keyboard")
        found = page.locator(".session", has_text="by keyboard").first
        expect(found).to_be_visible()
        expect(found.locator(".passage")).to_contain_text("by keyboard")
        page.keyboard.press("Tab")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide
