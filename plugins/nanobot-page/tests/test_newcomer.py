"""A newcomer without a key: one command, then only the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from conftest import Site

pytestmark = pytest.mark.timeout(120)
KEY = "sk-this-is-the-key-of-a-newcomer"


@pytest.fixture
def fresh(tmp_path: Path, site_of: type[Site]) -> Iterator[Site]:
    """A home in which nothing has run."""
    for needed in ("nanobot_offline", "nanobot_openai", "nanobot_files"):
        pytest.importorskip(needed)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    # Only so that tests can run side by side.
    (home / "config.yaml").write_text("# mine\ngateway:\n  port: 0  # any\n", "utf-8")
    site = site_of(home)
    yield site
    site.command("gateway", "stop")


def test_one_command_opens_a_page_that_sets_up_a_model(fresh: Site, browser: Browser) -> None:
    link = fresh.link()  # starts the gateway
    page = browser.new_page(base_url=fresh.url)
    page.set_default_timeout(60_000)
    page.goto(link)
    page.wait_for_url(f"{fresh.url}/")
    page.get_by_role("button", name="List the workspace").click()
    expect(page.locator("details.tool").first).to_contain_text("list_dir")
    page.goto("/")
    page.get_by_role("link", name="Set up a model").click()
    page.select_option("#provider", "openai")
    page.fill("#key", KEY)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".note")).to_contain_text("openai is saved")
    assert KEY not in page.content()
    page.fill("#model", "openai/gpt-test")
    page.get_by_role("button", name="Use this model").click()
    expect(page.locator("#welcome")).not_to_contain_text("No model is set up")
    page.close()
    content = (fresh.home / "config.yaml").read_text("utf-8")
    assert KEY in content
    assert "openai/gpt-test" in content
    assert "# mine" in content
    assert "port: 0  # any" in content
    assert KEY not in (fresh.home / "logs/nanobot.log").read_text("utf-8")
