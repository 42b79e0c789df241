"""The desk: what the owner sees and does on it, against a real gateway."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from conftest import Site

PAGES = (
    "/desk",
    "/desk/approvals",
    "/desk/plugins",
    "/desk/settings",
    "/desk/letters",
    "/desk/log",
    "/desk/install",
    "/desk/section?path=agents",
    "/desk/section?path=channels.web",
    "/desk/panel?plugin=cron&id=jobs",
    "/desk/panel?plugin=memory&id=memory",
    "/desk/panel?plugin=usage&id=usage",
)


class Client:
    """A browser without script."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.http = httpx.Client(
            base_url=site.url, cookies=site.cookie(), trust_env=False, follow_redirects=True
        )

    def get(self, path: str) -> str:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def send(self, path: str, page: str, /, **fields: str) -> httpx.Response:
        """Send a form with the hidden token and revision of a page."""
        hidden = {
            name: found[1]
            for name in ("token", "revision")
            if (found := re.search(f'name="{name}" value="([^"]*)"', page))
        }
        headers = {"origin": self.site.url}
        return self.http.post(path, data={**hidden, **fields}, headers=headers)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    client = Client(site)
    yield client
    client.http.close()


def config(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site.home / "config.json").read_text("utf-8"))
    return found


def test_a_form_without_the_token_does_nothing(client: Client) -> None:
    before = config(client.site)

    for path in ("approvals", "plugins", "letters", "section", "panel", "install", "sign-in"):
        answer = client.send(f"/desk/{path}", "", id="usage", change="disable", confirmed="yes")
        assert answer.status_code == 403

    assert config(client.site) == before


def test_a_setting_is_changed_and_nothing_else(client: Client) -> None:
    before, page = config(client.site), client.get("/desk/section?path=tools")

    fields = {"tools.timeout_s": "77", "tools.exec.path_append": ""}
    answer = client.send("/desk/section", page, path="tools", **fields)

    assert answer.status_code == 200
    assert "Saved." in answer.text
    assert 'value="77' in answer.text
    after = config(client.site)
    assert after["tools"].pop("timeout_s") == 77
    assert after == before


def test_a_secret_is_kept_if_its_field_is_empty(client: Client) -> None:
    page = client.get("/desk/section?path=channels.web")
    assert "correct horse" not in page

    fields = {"channels.web.login_days": "12", "channels.web.password": ""}
    answer = client.send("/desk/section", page, path="channels.web", **fields)

    assert answer.status_code == 200
    after = config(client.site)["channels"]["web"]
    assert after["password"] == "correct horse battery"
    assert after["login_days"] == 12
    assert "enabled" not in after


def test_a_wrong_value_is_shown_at_its_field_and_nothing_is_saved(client: Client) -> None:
    before, page = config(client.site), client.get("/desk/section?path=channels.web")

    for given in ("soon <b>", "-5"):
        fields = {"channels.web.login_days": given}
        answer = client.send("/desk/section", page, path="channels.web", **fields)
        assert answer.status_code == 422
        assert 'href="#channels.web.login_days"' in answer.text
        assert f'value="{html.escape(given)}"' in answer.text

    assert config(client.site) == before


def test_a_form_of_an_older_file_is_refused(client: Client) -> None:
    page = client.get("/desk/section?path=channels.web")
    file = client.site.home / "config.json"
    file.write_text(file.read_text("utf-8") + "\n", "utf-8")
    before = file.read_bytes()

    fields = {"channels.web.login_days": "13"}
    answer = client.send("/desk/section", page, path="channels.web", **fields)

    assert answer.status_code == 409
    assert "changed meanwhile" in answer.text
    assert file.read_bytes() == before


def test_a_plugin_is_disabled_after_a_question_and_enabled(client: Client) -> None:
    page = client.get("/desk/plugins")

    asked = client.send("/desk/plugins", page, id="heartbeat", change="disable")
    assert "Are you sure?" in asked.text
    assert "heartbeat" not in json.dumps(config(client.site).get("plugins", {}))
    fields = {"id": "heartbeat", "change": "disable", "confirmed": "yes"}
    assert "disabled: heartbeat" in client.send("/desk/plugins", page, **fields).text
    fields = {"id": "heartbeat", "change": "enable"}
    assert "enabled: heartbeat" in client.send("/desk/plugins", page, **fields).text


def test_an_action_of_a_panel_is_done_if_it_is_offered(client: Client) -> None:
    page = client.get("/desk/panel?plugin=cron&id=jobs")
    hidden = r'name="name" value="disable"><input [^>]*name="subject" value="([^"]+)"'
    found = re.search(hidden, page)
    assert found
    fields = {"plugin": "cron", "id": "jobs", "view": "", "subject": found[1]}

    paused = client.send("/desk/panel", page, name="disable", **fields)
    again = client.send("/desk/panel", page, name="disable", **fields)
    asked = client.send("/desk/panel", page, name="run", **fields)
    resumed = client.send("/desk/panel", page, name="enable", **fields)

    assert f"Disabled job {found[1]}." in paused.text
    assert "not offered any more" in again.text
    assert "Are you sure?" in asked.text
    assert f"Enabled job {found[1]}" in resumed.text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("--index-url=http://evil.example", "not the name of a distribution"),
        ("-r /etc/passwd", "not the name of a distribution"),
        ("nanobot-acme\n--pre", "not the name of a distribution"),
        ("nanobot-acme --pre", "not the name of a distribution"),
        ("../wheel", "not the name of a distribution"),
        ("nanobot-acme @ https://evil.example/x.whl", "in the terminal only"),
        ("nanobot_acme.whl", "in the terminal only"),
        (" ", "Expected a name"),
        ("x" * 201, "Expected a name"),
    ],
)
def test_what_is_not_a_name_is_not_installed(client: Client, name: str, reason: str) -> None:
    page = client.get("/desk/install")

    answer = client.send("/desk/install", page, do="plan", requirement=name)

    assert reason in answer.text
    assert 'data-busy="yes"' not in answer.text


def test_a_plan_that_nobody_has_seen_is_not_installed(client: Client) -> None:
    page = client.get("/desk/install")

    answer = client.send("/desk/install", page, do="install", digest="0" * 64)

    assert "nothing was installed" in answer.text


def test_a_sign_in_of_an_unknown_channel_is_an_error_page(client: Client) -> None:
    page = client.get("/desk/install")

    for channel in ("none", "web", "<script>", ""):
        assert client.http.get("/desk/sign-in", params={"channel": channel}).status_code == 404
        answer = client.send("/desk/sign-in", page, do="begin", channel=channel)
        assert answer.status_code == 404
        assert "<script>" not in answer.text


def test_an_answer_to_a_sign_in_that_has_ended_is_refused(client: Client) -> None:
    pytest.importorskip("nanobot_telegram")
    page = client.get("/desk/install")

    answer = client.send("/desk/sign-in", page, do="answer", channel="telegram", text="x")

    assert "This sign-in has ended." in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/desk/panel?plugin=cron&id=none", 404),
        ("/desk/panel?plugin=cron&id=jobs&view=%3Cscript%3E", 409),
        ("/desk/section?path=none", 404),
        ("/desk/none", 404),
    ],
)
def test_what_does_not_exist_is_an_error_page(client: Client, path: str, status: int) -> None:
    answer = client.http.get(path)

    assert answer.status_code == status
    assert "<script>" not in answer.text


def test_secrets_are_on_no_page(client: Client) -> None:
    for path in PAGES:
        assert "correct horse" not in client.get(path)
