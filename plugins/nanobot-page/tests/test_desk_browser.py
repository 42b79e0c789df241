"""The desk in a browser, against a real gateway with something on each page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from nanobot_core.testing import Reply, ScriptedCall

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, StorageState

    from conftest import Site

    Open: TypeAlias = Callable[..., AbstractContextManager[Page]]

pytestmark = pytest.mark.timeout(120)
SECRETS = ("swordfish-4711", "hunter2-horses", "skeleton-key-99")
CONFIG = Path(__file__).with_name("house.json")


@pytest.fixture(scope="module")
def site(desk_site: Site) -> Site:
    return desk_site


@pytest.fixture(scope="module")
def page(site: Site, signed_in: StorageState, open_page: Open) -> Iterator[Page]:
    """One page for all tests, because contexts and processes of Chromium cost the most."""
    with open_page(site, signed_in) as page:
        yield page


def config(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site.home / "config.json").read_text("utf-8"))
    return found


@pytest.fixture
def house(site: Site) -> dict[str, Any]:
    """The section ``house`` as at the beginning, whatever was saved before."""
    now = config(site)
    now["house"] = json.loads(CONFIG.read_text("utf-8"))["house"]
    (site.home / "config.json").write_text(json.dumps(now), "utf-8")
    found: dict[str, Any] = now["house"]
    return found


def field(page: Page, name: str) -> Locator:
    return page.locator(f'[name="house.{name}"]')


def pair(page: Page, name: str, place: int) -> tuple[Locator, Locator]:
    """Return the fields of a key and of its value."""
    parts = (f'[name="house.{name}:{part}:{place}"]' for part in ("key", "value"))
    key, value = (page.locator(part) for part in parts)
    return key, value


def save(page: Page) -> None:
    page.get_by_role("button", name="Save").click()


def write(page: Page, text: str) -> None:
    """Send a message to the agent from the plugin's panel."""
    page.goto("/desk/panel?plugin=house&id=loft")
    page.get_by_role("button", name=f"Write {text}").click()
    expect(page.get_by_role("status")).to_have_text(f"Sent: {text}.")


def wait_for(
    site: Site, page: Page, path: str, what: Locator, pattern: str, count: int = 1
) -> None:
    """Load a page once its source has a pattern so often, and expect the elements."""
    # Without rendering, which costs far more.
    site.until(lambda: len(re.findall(pattern, page.request.get(path).text())) >= count)
    page.goto(path)
    expect(what).to_have_count(count)


def test_every_kind_of_field_is_saved(site: Site, page: Page, house: dict[str, Any]) -> None:
    page.goto("/desk/section?path=house")
    expect(field(page, "motto")).to_have_value("dry\nand warm")
    field(page, "name").fill(' <b>"tent" ')
    field(page, "floors").fill("3")
    field(page, "warmth").fill("18.25")
    field(page, "heated").check()
    field(page, "roof").select_option("slate")
    field(page, "rooms").fill("kitchen\n\n  loft \n")
    field(page, "alarm").fill("new-alarm-code")
    field(page, "plan").fill("[[1, 2], [3]]")
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    expect(field(page, "name")).to_have_value(' <b>"tent" ')
    expect(field(page, "alarm")).to_have_value("")
    wanted = {
        "name": ' <b>"tent" ',
        "floors": 3,
        "warmth": 18.25,
        "heated": True,
        "roof": "slate",
        "rooms": ["kitchen", "loft"],
        "alarm": "new-alarm-code",
        "plan": [[1, 2], [3]],
    }
    assert config(site)["house"] == {**house, **wanted}
    field(page, "heated").uncheck()
    field(page, "motto").fill("")
    field(page, "floors").fill("")
    page.get_by_label("Remove spare").check()
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    expect(field(page, "floors")).to_have_value("2")
    now = config(site)["house"]
    assert now["heated"] is False
    assert not {"motto", "floors", "spare"} & now.keys()


def test_the_rows_of_maps_are_changed_added_and_removed(
    site: Site, page: Page, house: dict[str, Any]
) -> None:
    page.goto("/desk/section?path=house")
    expect(pair(page, "doors", 2)[0]).to_be_disabled()  # its key has a dot
    pair(page, "doors", 0)[1].fill("pine")
    pair(page, "doors", 1)[0].fill("")
    pair(page, "doors", 3)[1].fill("false")
    expect(pair(page, "doors", 4)[1]).to_have_value('"5"')
    key, value = pair(page, "doors", 5)
    key.fill("back")
    value.fill("7")
    expect(pair(page, "keys", 0)[1]).to_have_value("")
    key, value = pair(page, "keys", 1)
    key.fill("attic")
    value.fill("another-key-11")
    pair(page, "windows", 1)[1].fill("5")
    key, value = pair(page, "guests", 1)
    key.fill("Bert")
    value.select_option("family")
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    assert config(site)["house"] == {
        **house,
        "doors": {"front": "pine", "garage.big": "steel", "open": False, "code": "5", "back": 7},
        "keys": {"cellar": SECRETS[2], "attic": "another-key-11"},
        "windows": {"north": 2, "south": 5},
        "guests": {"Anna": "friend", "Bert": "family"},
    }
    assert "another-key-11" not in page.content()
    pair(page, "keys", 1)[0].fill("")
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    assert config(site)["house"]["keys"] == {"cellar": SECRETS[2]}


@pytest.mark.usefixtures("house")
def test_faults_are_beside_their_fields_and_in_a_summary(site: Site, page: Page) -> None:
    before = (site.home / "config.json").read_bytes()
    page.goto("/desk/section?path=house")
    field(page, "floors").fill("many")
    field(page, "warmth").fill("inf")
    field(page, "plan").fill("[1,")
    pair(page, "doors", 0)[0].fill("code")
    pair(page, "windows", 0)[1].fill("two")
    pair(page, "keys", 0)[0].fill("renamed")
    pair(page, "paint", 1)[0].fill("a.b")
    save(page)
    summary = page.get_by_role("alert")
    expect(summary).to_contain_text("Nothing was saved.")
    for name, reason in {
        "floors": "expected a whole number",
        "warmth": "expected a finite number",
        "plan": "expected JSON",
        "doors": "code: this key is there twice",
        "windows": "north: expected a whole number",
        "keys": "renamed: expected its secret",
        "paint": "a.b: a key with a dot",
    }.items():
        summary.get_by_role("link", name=f"house.{name}", exact=True).click()
        place = page.locator(f'[id="house.{name}"]')
        expect(place).to_be_in_viewport()
        if name not in ("doors", "windows", "keys", "paint"):
            expect(place).to_have_attribute("aria-invalid", "true")
        around = page.locator(".field", has=place).or_(place)
        expect(around.locator(".error").first).to_contain_text(reason)
    expect(field(page, "floors")).to_have_value("many")
    expect(pair(page, "windows", 0)[1]).to_have_value("two")
    assert (site.home / "config.json").read_bytes() == before
    page.goto("/desk/section?path=house")
    field(page, "floors").fill("0")  # what the form cannot know, its plugin says
    save(page)
    expect(page.get_by_role("alert")).to_contain_text("house.floors")
    assert (site.home / "config.json").read_bytes() == before


def test_a_file_that_was_edited_meanwhile_is_shown_and_not_overwritten(
    site: Site, page: Page
) -> None:
    file = site.home / "config.json"
    page.goto("/desk/section?path=house")
    field(page, "name").fill("palace")
    edited = config(site)
    edited["house"]["warmth"] = 19.75
    file.write_text(json.dumps(edited), "utf-8")
    save(page)
    expect(page.get_by_role("alert")).to_contain_text("changed meanwhile")
    assert config(site) == edited
    expect(field(page, "warmth")).to_have_value("19.75")
    expect(page.get_by_text("does not use yet")).to_be_visible()
    field(page, "name").fill("palace")
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    edited["house"]["name"] = "palace"
    assert config(site) == edited
    expect(page.get_by_text("does not use yet")).to_have_count(0)


def test_an_edited_file_is_applied_and_a_broken_one_is_explained(site: Site, page: Page) -> None:
    file = site.home / "config.json"
    before = file.read_text("utf-8")
    edited = config(site)
    edited["house"]["rooms"] = ["cellar"]
    edited["tools"]["timeout_s"] = "soon"
    file.write_text(json.dumps(edited), "utf-8")
    page.goto("/desk/settings")
    expect(page.get_by_text("tools.timeout_s")).to_be_visible()
    page.get_by_role("button", name="Apply the file").click()
    expect(page.get_by_role("alert")).to_contain_text("tools.timeout_s")
    page.goto("/desk/section?path=tools")
    expect(page.get_by_role("alert")).to_contain_text("tools.timeout_s")
    page.locator('[name="tools.timeout_s"]').fill("55")
    save(page)
    expect(page.get_by_role("status")).to_contain_text("Saved.")
    page.goto("/desk/settings")
    expect(page.get_by_role("button", name="Apply the file")).to_have_count(0)
    file.write_text("{ not json", "utf-8")
    page.goto("/desk/settings")
    expect(page.get_by_role("alert")).to_contain_text("config.json")
    file.write_text(before, "utf-8")
    page.get_by_role("link", name="load this page again").click()
    page.get_by_role("button", name="Apply the file").click()
    expect(page.get_by_role("status")).to_contain_text("house")


def test_a_plugin_is_disabled_enabled_and_reloaded(site: Site, page: Page) -> None:
    page.goto("/desk/plugins")
    page.get_by_role("button", name="Disable heartbeat", exact=True).click()
    page.get_by_role("link", name="No, go back").click()
    page.get_by_role("button", name="Disable heartbeat", exact=True).click()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status")).to_contain_text("disabled: heartbeat")
    page.get_by_role("button", name="Enable heartbeat", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("enabled: heartbeat")
    page.get_by_role("button", name="Reload house", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("reloaded: house")
    card = page.locator(".card", has=page.get_by_role("heading", name="house"))
    card.locator("summary").click()
    expect(card.locator("dl")).to_contain_text("channels: pigeon")
    page.get_by_role("button", name="Disable http", exact=True).click()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("alert")).to_contain_text("requires it")


def asked(site: Site, page: Page, content: str) -> Locator:
    """Have the agent ask for approval, and return the card."""
    arguments = json.dumps({"path": "note.txt", "content": content})
    site.model.script.replies["note"] = Reply(
        calls=(ScriptedCall(name="write_file", arguments=arguments),)
    )
    (site.home / "workspace/note.txt").unlink(missing_ok=True)
    write(page, "note")
    wait_for(site, page, "/desk/approvals", page.locator(".card"), 'class="card"')
    return page.locator(".card")


def test_an_approval_shows_the_exact_arguments_and_two_tabs_decide_once(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    card = asked(site, page, f"a\u202eb <b>\n{'x' * 300}")
    expect(card.locator("pre")).to_contain_text('"content": "a\\u202eb <b>\\nxxx')
    check_access(page)
    second = page.context.new_page()
    second.goto("/desk/approvals")
    card.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("status")).to_contain_text("Denied")
    second.get_by_role("button", name="Allow once").click()
    expect(second.get_by_role("alert")).to_contain_text("answered already")
    expect(second.locator(".card")).to_have_count(0)
    second.close()
    assert not (site.home / "workspace/note.txt").exists()


def test_a_double_click_allows_a_call_once(site: Site, page: Page) -> None:
    card = asked(site, page, "once\n")
    sent: list[str] = []
    page.on("request", lambda each: sent.append(each.url) if each.method == "POST" else None)
    card.get_by_role("button", name="Allow once").dblclick()
    # A second request would be answered that the question is not open any more.
    expect(page.get_by_role("status")).to_contain_text("Allowed")
    file = site.home / "workspace/note.txt"
    nothing = "No tool call waits for you."
    wait_for(site, page, "/desk/approvals", page.get_by_text(nothing), nothing)
    site.until(file.exists)
    assert file.read_text("utf-8") == "once\n"
    assert len(sent) == 1


@contextmanager
def fog(site: Site) -> Iterator[None]:
    """Let replies to the messages that are sent now get lost."""
    file = site.home / "workspace/fog"
    file.touch()
    try:
        yield
    finally:
        file.unlink()


def test_dead_letters_are_tried_again_and_deleted(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    with fog(site):
        write(page, "hello")
        write(page, "hello")
        wait_for(site, page, "/desk/letters", page.locator(".card"), 'class="card"', 2)
    expect(page.locator(".card").first).to_contain_text("lost in the <b>fog</b>")
    expect(page.locator(".card pre").first).to_contain_text("You said: hello")
    check_access(page)
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("pre.log")).to_contain_text("dead letter: lost in the <b>fog</b>")
    page.go_back()
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_role("status")).to_contain_text("tried again")
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status")).to_contain_text("deleted")
    expect(page.get_by_text("There are none.")).to_be_visible()


def test_a_job_is_paused_resumed_run_and_removed(site: Site, page: Page) -> None:
    arguments = json.dumps(
        {"action": "add", "message": "Say <b>hello", "name": "Greeting", "every_seconds": 7200}
    )
    site.model.script.replies["job"] = Reply(
        calls=(ScriptedCall(name="cron", arguments=arguments),)
    )
    write(page, "job")
    row = page.get_by_role("row", name="Greeting")
    wait_for(site, page, "/desk/panel?plugin=cron&id=jobs", row, "<td>Greeting</td>")
    expect(row).to_contain_text("every 2 hours")
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Disabled job")
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("Enabled job")
    row.get_by_role("button", name="Run now").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status")).to_contain_text("runs now")
    ran = "ok, |done, |completed, "
    row_of_it = row.filter(has_text=re.compile(ran))
    wait_for(site, page, "/desk/panel?plugin=cron&id=jobs", row_of_it, ran)
    row.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", name="Greeting")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Remove the job 'Greeting'")).to_be_visible()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status")).to_contain_text("Removed job")
    expect(row).to_have_count(0)


def test_a_version_of_the_memory_is_compared_and_reverted(site: Site, page: Page) -> None:
    page.goto("/desk/panel?plugin=memory&id=memory")
    page.get_by_role("row", name="USER.md").filter(has_text="Difference").first.get_by_role(
        "link", name="Difference"
    ).click()
    expect(page.locator(".diff .added").last).to_have_text(re.compile(r"\+- Likes <b>tea</b>"))
    page.get_by_role("button", name="Revert").click()
    expect(page.get_by_text("Revert the change")).to_be_visible()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status")).to_be_visible()
    assert (site.home / "workspace/USER.md").read_text("utf-8") == "- Name: Anna\n"


def heights(page: Page) -> list[float]:
    """Return the heights of the bars of a picture."""
    found = page.locator(".bars rect").all()
    return [float(each.get_attribute("height") or "nan") for each in found]


def test_bars_and_their_table_agree(site: Site, page: Page) -> None:
    page.goto("/desk/panel?plugin=house&id=loft")
    assert heights(page) == [100, 25, 0]
    page.locator("summary", has_text="Harvest").click()
    rows = page.locator("details tr")
    expect(rows).to_have_text(["Mon40 kg", "Tue10 kg", "<b>Wednone"])
    titles = page.locator(".bars title").all_text_contents()
    assert titles == ["Mon: 40 kg", "Tue: 10 kg", "<b>Wed: none"]


def test_usage_has_a_bar_for_today(site: Site, page: Page) -> None:
    write(page, "hello")
    calls = page.get_by_role("row", name="custom/m")
    wait_for(site, page, "/desk/panel?plugin=usage&id=usage&view=7", calls, "custom/m")
    assert heights(page) == [0, 0, 0, 0, 0, 0, 100]
    today = page.locator(".bars title").last.text_content() or ""
    words = today.partition(": ")[2]
    page.locator("summary").first.click()
    expect(page.locator("details").first.locator("tr").last).to_contain_text(words)
    expect(page.get_by_text(re.compile("Last 7 days: "))).to_contain_text(words)


def test_the_page_of_a_plugin_is_in_the_menu(site: Site, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/desk/panel?plugin=usage&id=usage")
    menu = page.get_by_role("navigation", name="Desk")
    expect(menu.get_by_role("link", name="Usage")).to_be_in_viewport()
    expect(menu.get_by_role("link", name="Overview")).not_to_be_in_viewport()
    expect(menu.get_by_role("link", name="Shed")).to_have_count(0)
    menu.get_by_role("link", name="Garden <b>").click()
    expect(page.get_by_role("heading", name="Roses")).to_be_visible()


PAGES = (
    "/desk",
    "/desk/approvals",
    "/desk/plugins",
    "/desk/settings",
    "/desk/letters",
    "/desk/log",
    "/desk/section?path=house",
    "/desk/section?path=agents",
    "/desk/section?path=channels.web",
    "/desk/install",
    "/desk/sign-in?channel=pigeon",
    "/desk/panel?plugin=cron&id=jobs",
    "/desk/panel?plugin=memory&id=memory",
    "/desk/panel?plugin=usage&id=usage",
    "/desk/panel?plugin=house&id=loft",
)


def test_every_page_is_accessible_and_has_no_secret(
    site: Site, page: Page, check_access: Callable[[Page], None]
) -> None:
    for path in PAGES:
        page.goto(path)
        for secret in (*SECRETS, "sk-planted-1234", "new-alarm-code"):
            assert secret not in page.content()
        check_access(page)
