"""Setting up a model: which services the page offers, and what it saves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Site

pytestmark = pytest.mark.timeout(120)


class Client:
    """A browser without script."""

    def __init__(self, site: Site) -> None:
        self.site = site
        cookies = site.cookie()
        self.http = httpx.Client(
            base_url=site.url, cookies=cookies, trust_env=False, follow_redirects=True, timeout=60
        )

    def get(self, path: str) -> str:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def send(self, path: str, **fields: str) -> httpx.Response:
        token = re.search(r'name="token" value="([^"]*)"', self.get("/logins"))
        assert token
        data = {"token": token[1], **fields}
        return self.http.post(path, data=data, headers={"origin": self.site.url})

    def settings(self) -> dict[str, Any]:
        return dict(json.loads((self.site.home / "config.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def own(
    tmp_path_factory: pytest.TempPathFactory,
    run_site: Callable[..., AbstractContextManager[Site]],
) -> Iterator[Site]:
    """A gateway whose model and plugins the tests change."""
    with run_site(tmp_path_factory.mktemp("setup") / "home") as site:
        yield site


@pytest.fixture
def client(own: Site) -> Iterator[Client]:
    client = Client(own)
    yield client
    client.http.close()


def options(page: str) -> dict[str, list[str]]:
    """Return the services that can be chosen, by group."""
    groups = re.findall(r'<optgroup label="([^"]*)">(.*?)</optgroup>', page, re.DOTALL)
    return {label: re.findall(r"<option [^>]*>([^<]*)", inner) for label, inner in groups}


def test_services_are_named_by_what_they_need(client: Client) -> None:
    page = client.get("/setup")
    groups = options(page)
    assert "openai: OpenAI" in groups["With a key"]
    assert "ollama: an Ollama server" in groups["Also without a key"]
    assert not [each for group in groups.values() for each in group if "copilot" in each]
    assert "<code>nanobot providers login github-copilot</code>" in page


def test_a_service_without_a_key_is_set_up_by_its_model_alone(client: Client) -> None:
    chosen = client.send("/setup", provider="ollama", key="")
    assert chosen.status_code == 200
    assert "ollama needs no key" in chosen.text
    assert client.send("/setup", provider="ollama", model="llama3.2").status_code == 200
    settings = client.settings()
    assert settings["agents"]["defaults"]["model"] == "ollama/llama3.2"
    assert "ollama" not in settings["providers"]
    explained = json.loads(client.site.command("providers", "explain", "--json"))
    assert explained["provider"] == "ollama"
    # It may have one, and the name of its model may be complete, or have a slash of its own.
    assert "key of vllm is saved" in client.send("/setup", provider="vllm", key="k").text
    for given in ("vllm/meta/llama", "meta/llama"):
        client.send("/setup", provider="vllm", model=given)
        assert client.settings()["agents"]["defaults"]["model"] == "vllm/meta/llama"


def test_a_service_with_a_key_is_not_set_up_without_it(client: Client) -> None:
    before = client.settings()
    refused = client.send("/setup", provider="openai", key=" ")
    assert refused.status_code == 400
    assert "Not saved: openai needs a key" in refused.text
    assert 'value="openai" selected' in refused.text
    assert 'name="key"' in client.get("/setup?provider=openai&saved=0")
    assert client.settings() == before


def test_a_service_with_a_sign_in_is_not_asked_for_a_key(client: Client) -> None:
    page = client.get("/setup?provider=github_copilot&saved=0")
    assert "nanobot providers login github-copilot" in page
    assert 'name="key"' not in page
    refused = client.send("/setup", provider="github_copilot", key="k")
    assert refused.status_code == 400
    assert "github_copilot has no key" in refused.text
    assert client.send("/setup", provider="github_copilot", model="gpt-x").status_code == 200
    assert client.settings()["agents"]["defaults"]["model"] == "github_copilot/gpt-x"


def test_the_page_looks_right_in_each_step(
    own: Site,
    browser: Browser,
    open_page: Callable[..., AbstractContextManager[Page]],
    check_access: Callable[..., None],
) -> None:
    with open_page(own) as page:
        page.goto("/setup")
        check_access(page)
        page.select_option("#provider", "ollama")
        page.get_by_role("button", name="Continue").click()
        page.wait_for_selector("#model")
        check_access(page)
        page.goto("/setup")
        page.get_by_role("link", name="Choose a model of github_copilot").click()
        page.wait_for_selector("#model")
        check_access(page)


def test_without_a_provider_the_page_says_what_to_install(client: Client) -> None:
    providers = [
        name for name in ("anthropic", "litellm", "openai") if find_spec(f"nanobot_{name}")
    ]
    for name in providers:
        client.send("/desk/plugins", id=name, change="disable", confirmed="yes")
    try:
        page = client.get("/setup")
        assert "No model provider is installed" in page
        assert "python3 -m pip install nanobot-openai\nnanobot gateway reload" in page
        assert "<code>python3 -m pip install ./plugins/nanobot-openai</code>" in page
        assert "<select" not in page
        assert client.send("/setup", provider="openai", key="k").status_code == 400
    finally:
        for name in providers:
            client.send("/desk/plugins", id=name, change="enable")
