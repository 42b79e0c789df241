"""The chat in a browser, before a real gateway; the model is scripted.

The page follows turns by the hooks before_turn, on_stream, before_execute_tools,
after_execute_tool, after_approval and after_turn.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from nanobot_core.testing import Reply, ScriptedCall

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Site

ANSWERED = "#log > .assistant:not(.live)"
HEAR = """() => {
  window.heard = [];
  const says = document.getElementById("says");
  new MutationObserver(() => heard.push(says.textContent)).observe(says, {childList: true});
}"""
"""Collect what a screen reader says."""
IS_AT_END = """() => {
  const place = document.getElementById("scroller");
  return place.scrollHeight - place.scrollTop - place.clientHeight < 5;
}"""
pytestmark = pytest.mark.timeout(120)


def write(page: Page, text: str) -> None:
    # Set by the page's script, which sends what is written.
    page.wait_for_selector("#connection[data-state]", state="attached")
    page.fill("#text", text)
    page.press("#text", "Enter")


def ask(page: Page, text: str) -> None:
    """Write in a new chat and wait for the stored answer."""
    page.goto("/")
    write(page, text)
    expect(page.locator(ANSWERED)).to_have_count(1)


def test_an_answer_appears_while_it_is_written_and_is_stored_once(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["stream"] = Reply(
        text="", calls=(ScriptedCall(name="list_dir", arguments='{"path": "."}'),)
    )
    page.goto("/")
    write(page, "stream")
    expect(page.locator(ANSWERED).last).to_contain_text("It gave")
    expect(page.locator("#log > .user")).to_have_count(1)
    expect(page.locator(".live")).to_have_count(0)
    tool = page.locator("details.tool").first
    expect(tool).to_contain_text("list_dir")
    tool.locator("summary").click()
    expect(tool).to_contain_text('"path": "."')
    expect(tool).to_contain_text("from files@")
    expect(tool.locator("pre").last).to_contain_text("AGENTS.md")
    assert page.locator("#log[aria-live], #log [aria-live], #log [role=status]").count() == 0
    page.evaluate(HEAR)
    site.model.script.replies["wait"] = Reply(text="Now **it** comes.", gate=gate)
    write(page, "wait")
    expect(page.locator(".live .working")).to_be_visible()
    expect(page.locator("#stop")).to_be_visible()
    release()
    expect(page.locator(ANSWERED).last.locator("strong")).to_have_text("it")
    expect(page.locator("#stop")).to_be_hidden()
    heard = [text for text in page.evaluate("heard") if "still answering" not in text]
    assert heard == ["nanobot is answering", "nanobot: Now it comes."]
    before = page.locator("#log > article").all_inner_texts()
    page.reload()
    expect(page.locator("#log > article")).to_have_count(len(before))
    assert page.locator("#log > article").count() == len(before)


def test_the_reader_keeps_the_place_and_the_selection(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    lines = "\n\n".join(f"Line {number}." for number in range(80))
    site.model.script.replies["long text"] = Reply(text=lines)
    site.model.script.replies["more text"] = Reply(text=lines, gate=gate)
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    write(page, "long text")
    expect(page.locator(ANSWERED)).to_have_count(1)
    page.wait_for_function(IS_AT_END)
    write(page, "more text")
    expect(page.locator(".live .dots i").first).to_have_css("animation-name", "none")
    page.wait_for_function(IS_AT_END)
    page.locator("#scroller").hover()
    page.mouse.wheel(0, -1_500)
    page.wait_for_function(f"() => !({IS_AT_END})()")
    near_the_end = page.locator(".assistant .text p").nth(69)
    near_the_end.evaluate("(line) => getSelection().selectAllChildren(line)")
    top = page.evaluate("document.getElementById('scroller').scrollTop")
    release()
    expect(page.locator(ANSWERED)).to_have_count(2)
    expect(page.locator("#newer")).to_be_visible()
    assert page.evaluate("document.getElementById('scroller').scrollTop") == top
    assert page.evaluate("getSelection().toString()") == "Line 69."
    page.locator("#newer").click()
    page.wait_for_function(IS_AT_END)
    expect(page.locator("#newer")).to_be_hidden()


def test_thinking_is_collapsed_and_code_can_be_copied(site: Site, page: Page) -> None:
    text = "Look:\n\n```python\nprint('hi')  # now\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n"
    site.model.script.replies["code"] = Reply(text=text, reasoning="Which language?")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, "code")
    thinking = page.locator("details.thinking")
    expect(thinking.locator(".plain-text")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".plain-text")).to_have_text("Which language?")
    page.locator(".copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "print('hi')  # now\n"
    assert page.locator(".text span[class^=s-]").count() > 1
    expect(page.locator("table td").first).to_have_text("1")


def test_an_approval_shows_the_exact_arguments_and_counts_once(site: Site, page: Page) -> None:
    arguments = '{"path": "note.txt", "content": "a\\u202eb <b>"}'
    site.model.script.replies["note"] = Reply(
        calls=(ScriptedCall(name="write_file", arguments=arguments),)
    )
    page.goto("/")
    write(page, "note")
    card = page.locator(".approval")
    expect(card.locator("pre")).to_contain_text("a\\u202eb <b>")
    second = page.context.new_page()
    second.goto(page.url)
    expect(second.locator(".approval")).to_have_count(1)
    digest, question = card.get_attribute("data-digest"), card.get_attribute("data-question")
    data = {"question": question, "digest": "0" * len(digest or ""), "allowed": True}
    post = page.context.request.post
    assert post(f"{site.url}/web/approvals", data=data).status == 403  # without the token
    token = page.get_attribute("#chat", "data-token") or ""
    proof = {"x-nanobot-token": token}
    assert post(f"{site.url}/web/approvals", data=data, headers=proof).status == 409
    card.get_by_role("button", name="Deny").click()
    expect(page.locator(".approval")).to_have_count(0)
    expect(second.locator(".approval")).to_have_count(0)
    assert not (site.home / "workspace/note.txt").exists()
    expect(page.locator(ANSWERED).last).to_contain_text("not approved")
    second.close()
    late = {**data, "digest": digest}
    assert post(f"{site.url}/web/approvals", data=late, headers=proof).status == 404


def test_stop_ends_the_turn_and_a_message_joins_it(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["forever"] = Reply(text="never", gate=gate)
    page.goto("/")
    write(page, "forever")
    expect(page.locator(".live")).to_be_visible()
    write(page, "and this")
    expect(page.locator("#log > .user")).to_have_count(2)
    page.press("#text", "Escape")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator(".live")).to_have_count(0)
    release()
    write(page, "still here?")
    expect(page.locator(ANSWERED).last).to_contain_text("You said: still here?")


def test_closing_the_tab_ends_no_turn(site: Site, page: Page) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["long"] = Reply(text="It took long.", gate=gate)
    page.goto("/")
    write(page, "long")
    expect(page.locator(".live")).to_be_visible()
    page.wait_for_url("**/chat?s=*")
    address = page.url
    context = page.context
    page.close()
    release()
    again = context.new_page()
    again.goto(address)
    expect(again.locator(ANSWERED)).to_contain_text("It took long.")
    expect(again.locator("#log > .user")).to_have_count(1)


def test_commands_are_completed_and_answered(page: Page) -> None:
    page.goto("/")
    page.locator("#text").press_sequentially("/hel")
    option = page.locator("#options [aria-selected=true]")
    expect(option).to_contain_text("/help")
    page.press("#text", "Tab")
    expect(page.locator("#text")).to_have_value("/help ")
    page.press("#text", "Enter")
    expect(page.locator(".notice")).to_contain_text("/approve")
    page.reload()
    expect(page.locator(".notice")).to_contain_text("/approve")


def test_the_draft_survives_and_an_input_method_sends_nothing(page: Page) -> None:
    page.goto("/")
    page.fill("#text", "half a thought")
    page.reload()
    expect(page.locator("#text")).to_have_value("half a thought")
    event = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true})"
    page.evaluate(f"document.getElementById('text').dispatchEvent({event})")
    page.press("#text", "Shift+Enter")
    expect(page.locator("#log > .user")).to_have_count(0)
    assert "\n" in page.input_value("#text")
    page.fill("#text", "")


def test_files_are_sent_shown_and_downloaded(site: Site, page: Page, tmp_path: Path) -> None:
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154"
        "789c6360000002000001e221bc330000000049454e44ae426082"
    )
    picture, lie = tmp_path / "a.png", tmp_path / "lie.png"
    picture.write_bytes(pixel)
    lie.write_bytes(b"<script>hacked()</script>" + b"x" * 3_000_000)
    page.goto("/")
    page.set_input_files("#pick", [picture, lie])
    expect(page.locator("#chips .ready")).to_have_count(2)
    write(page, "look")
    expect(page.locator(".user img")).to_have_count(1)
    expect(page.locator(ANSWERED)).to_contain_text("You said: look")
    assert page.evaluate("document.querySelector('.user img').complete")
    address = page.locator(".user a.file").get_attribute("href")
    answer = page.context.request.get(f"{site.url}{address}")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert len(answer.body()) == lie.stat().st_size
    for wrong in ("..", "../../config.json", "0" * 16, f"{'0' * 15}/"):
        found = page.context.request.get(f"{site.url}/web/files", params={"id": wrong})
        assert found.status == 404


def test_chats_are_found_renamed_branched_and_deleted(site: Site, page: Page) -> None:
    ask(page, "the zebra in the garden")
    first = page.url
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Rename").click()
    page.fill("#ask-value", "Stripes <b>")
    page.press("#ask-value", "Enter")
    expect(page.locator("#title")).to_have_text("Stripes <b>")
    page.fill("#search", "zebra")
    expect(page.locator(".session").first).to_contain_text("zebra in the")
    page.locator("#log > .user").hover()
    page.locator("#log > .user").get_by_role("button", name="Retry from here").click()
    page.wait_for_url(lambda url: url != first)
    expect(page.locator(ANSWERED)).to_contain_text("You said: the zebra")
    expect(page.locator("#log > .user")).to_have_count(1)
    again = page.url
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer = page.locator(ANSWERED)
    answer.hover()
    answer.get_by_role("button", name="Copy").click()
    expect(answer.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "You said: the zebra in the garden"
    answer.get_by_role("button", name="Branch").click()
    page.wait_for_url(lambda url: url not in (first, again))
    expect(page.locator("#log > .message")).to_have_count(2)
    page.goto(first)
    exported = page.context.request.get(
        f"{site.url}{page.locator('#export').get_attribute('href')}"
    )
    assert "the zebra in the garden" in exported.text()
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Delete").click()
    page.locator("#ask-yes").click()
    page.wait_for_url(f"{site.url}/")
    page.goto(first)
    expect(page.locator("#log > .message")).to_have_count(0)


def test_sessions_of_other_channels_can_be_read_and_continued(site: Site, page: Page) -> None:
    site.command("agent", "-s", "cli:elsewhere", "-m", "from the terminal")
    page.goto("/chat?s=cli%3Aelsewhere")
    expect(page.locator(ANSWERED)).to_contain_text("You said: from the terminal")
    expect(page.locator("#composer")).to_have_count(0)
    page.get_by_role("button", name="Continue in a branch").click()
    page.wait_for_url("**/chat?s=web*")
    expect(page.locator("#log > .user")).to_have_count(1)
    write(page, "here now")
    expect(page.locator(ANSWERED).last).to_contain_text("You said: here now")


class Cable:
    """A connection to the gateway that can be cut."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._target = (str(place.hostname), int(place.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.is_cut = False

    def run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pump, args=(one, other))
                    thread.start()
                    self._threads.append(thread)

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.is_cut = True
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


@contextmanager
def cable(url: str) -> Iterator[Cable]:
    found = Cable(url)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        found.close()
        thread.join()


def test_nothing_is_lost_or_doubled_after_a_lost_connection(site: Site, browser: Browser) -> None:
    gate, release = site.model.gate()
    site.model.script.replies["during"] = Reply(text="Said while you were away.", gate=gate)
    with cable(site.url) as line:
        context = browser.new_context(base_url=f"http://127.0.0.1:{line.port}")
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"/login#code={site.link().partition('#code=')[2]}")
        page.wait_for_selector("#text")
        write(page, "during")
        expect(page.locator(".live")).to_be_visible()
        line.cut()
        expect(page.locator("#connection")).to_contain_text("Connection lost")
        release()
        # Written without a connection: it is sent when there is one again.
        write(page, "sent later")
        line.is_cut = False
        expect(page.locator("#connection")).to_have_text("")
        expect(page.locator(ANSWERED)).to_have_count(2)
        texts = page.locator("#log > article .text, #log > article .bubble").all_inner_texts()
        assert texts == [
            "during",
            "Said while you were away.",
            "sent later",
            "You said: sent later",
        ]
        context.close()


def test_a_new_process_makes_the_page_load_its_chat_again(site: Site, page: Page) -> None:
    ask(page, "before the crash")
    session = page.evaluate("document.getElementById('chat').dataset.key")
    found: Any = page.context.request.get(f"{site.url}/web/since", params={"after": "dead-1"})
    assert found.json()["reset"] is True
    page.evaluate("document.querySelector('#log > .assistant').remove()")
    found = page.context.request.get(f"{site.url}/web/snapshot", params={"s": session})
    assert "before the crash" in found.json()["html"]


def test_long_chats_come_in_pages(site: Site, page: Page) -> None:
    site.command("agent", "-s", "cli:long", "-m", "the beginning")
    files = (site.home / "workspace/sessions").iterdir()
    file = next(each for each in files if "the beginning" in each.read_text("utf-8"))
    with file.open("a", encoding="utf-8") as history:
        for number in range(10_000):
            role = "assistant" if number % 2 else "user"
            history.write(json.dumps({"role": role, "content": f"message {number}"}) + "\n")
    page.goto("/chat?s=cli%3Along")
    expect(page.locator("#log > article")).to_have_count(50)
    expect(page.locator("#log > article").last).to_contain_text("message 9999")
    page.locator("#older").click()
    expect(page.locator("#log > article")).to_have_count(100)
    expect(page.locator("#log > article").first).to_contain_text("message 9900")


def test_a_page_is_small(site: Site, page: Page) -> None:
    sizes = []
    page.on("response", lambda response: sizes.append(len(response.body())))
    page.goto("/")
    page.wait_for_load_state("load")
    assert 20_000 < sum(sizes) < 150_000
