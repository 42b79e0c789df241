"""Keys: rights, limits, storage and revocation."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from pydantic import ValidationError

from nanobot_api.keys import ApiKey

if TYPE_CHECKING:
    from conftest import Gateway


def _ask(gateway: Gateway, key: str, text: str = "hello", **fields: Any) -> httpx.Response:
    body = {"model": "nanobot", "messages": [{"role": "user", "content": text}], **fields}
    with gateway.client(key) as client:
        return client.post("/chat/completions", json=body)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer nanobot-wrong"},
        {"authorization": "Basic KEY"},
        {"authorization": "KEY"},
        {"x-api-key": "KEY"},
        {"api-key": "KEY"},
        {"cookie": "key=KEY"},
    ],
)
def test_only_the_authorization_header_is_read(gateway: Gateway, headers: dict[str, str]) -> None:
    headers = {name: value.replace("KEY", gateway.key) for name, value in headers.items()}
    address = f"{gateway.url}/models?key={gateway.key}"

    response = httpx.get(address, headers=headers, trust_env=False)

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["x-request-id"]


def test_strangers_cannot_tell_paths_apart(gateway: Gateway) -> None:
    answers = [
        httpx.post(f"{gateway.url}{path}", content=b"{", trust_env=False)
        for path in ("/models", "/chat/completions", "/nothing", "")
    ]

    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1


def test_a_key_is_shown_once_and_only_its_hash_is_stored(gateway: Gateway) -> None:
    added = gateway.command("add", "shown-once", "--deny", "exec", "--tokens-per-day", "5")
    secret = added.stdout.strip()
    listed = gateway.command("list")
    as_json = gateway.command("list", "--json")
    again = gateway.command("add", "shown-once")

    assert secret.startswith("nanobot-")
    assert len(secret) > 40
    assert "shown-once: rights of a guest; tools * except exec" in listed.stdout
    [entry] = [one for one in json.loads(as_json.stdout) if one["name"] == "shown-once"]
    assert entry["tokens_per_day"] == 5
    assert again.returncode == 1
    assert "revoke it first" in again.stderr
    for file in gateway.home.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes()
    assert (gateway.home / "plugins/api/api.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "Web", "a b", "-x", "a:b", "x" * 33, "../x", "é", "a\n"])
def test_a_name_that_cannot_be_part_of_a_session_key_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        ApiKey(name=name, created_at=datetime.now(UTC))


def test_a_refused_name_is_explained(gateway: Gateway) -> None:
    done = gateway.command("add", "My Program")

    assert done.returncode == 2
    assert "name" in done.stderr
    assert not done.stdout


def test_a_revoked_key_is_refused_and_its_requests_end(gateway: Gateway) -> None:
    key, text = gateway.add_key("short-lived"), f"{uuid4().hex}\nsilent"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(_ask, gateway, key, text, stream=True, model="nanobot-plain")
        gateway.model.asked(text.partition("\n")[0])
        revoked = gateway.command("revoke", "short-lived")
        running = future.result()
    after = _ask(gateway, key)
    unknown = gateway.command("revoke", "short-lived")

    assert revoked.returncode == 0
    assert running.status_code == 401
    assert after.status_code == 401
    assert unknown.returncode == 1
    assert "no key 'short-lived'" in unknown.stderr


def test_a_key_may_use_its_models_only(gateway: Gateway) -> None:
    key = gateway.add_key("one-model", "--model", "nanobot-plain")

    allowed = _ask(gateway, key, model="nanobot-plain")
    others = [_ask(gateway, key, model=model) for model in ("nanobot", "custom/m", "*", "m")]
    with gateway.client(key) as client:
        listed = client.get("/models").json()["data"]

    assert allowed.status_code == 200
    assert {response.status_code for response in others} == {404}
    assert {response.json()["error"]["code"] for response in others} == {"model_not_found"}
    assert [model["id"] for model in listed] == ["nanobot-plain"]


def test_a_key_has_the_rights_and_tools_that_the_owner_gave_it(gateway: Gateway) -> None:
    (gateway.home / "workspace/owners.txt").write_text("x", "utf-8")
    owner = gateway.add_key("of-owner", "--rights", "owner")
    guest = gateway.add_key("of-guest")
    narrow = gateway.add_key("narrow", "--rights", "owner", "--allow", "read_*")

    texts = [
        _ask(gateway, key, "look").json()["choices"][0]["message"]["content"]
        for key in (owner, guest, narrow)
    ]

    assert "owners.txt" in texts[0]
    assert "owners.txt" not in texts[1]
    assert "owners.txt" not in texts[2]
    offered = gateway.model.asked("list_dir").body["tools"]
    assert all(tool["function"]["name"].startswith("read_") for tool in offered)


def test_too_many_requests_get_429_as_json(gateway: Gateway) -> None:
    key = gateway.add_key("slow", "--requests-per-minute", "2")

    statuses = [_ask(gateway, key, model="nope").status_code for _ in range(2)]
    refused = _ask(gateway, key)

    assert statuses == [404, 404]
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 30


def test_used_up_tokens_of_a_day_refuse_further_requests(gateway: Gateway) -> None:
    key = gateway.add_key("poor", "--tokens-per-day", "100")

    first = _ask(gateway, key, "hundred", model="nanobot-plain")
    refused = _refused(gateway, key)

    assert first.status_code == 200
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"


def _refused(gateway: Gateway, key: str) -> httpx.Response:
    """Ask until it is refused: the hook that counts may come after the answer."""
    answers: list[httpx.Response] = []

    def is_refused() -> bool:
        answers.append(_ask(gateway, key, model="nanobot-plain"))
        return answers[-1].status_code == 429

    gateway.until(is_refused)
    return answers[-1]


def test_a_busy_gateway_and_a_file_of_a_later_release_refuse_requests(fragile: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        key, text = fragile.add_key("other"), f"{uuid4().hex}\nsilent"
        future = pool.submit(_ask, fragile, key, text, model="nanobot-plain")
        fragile.model.asked(text.partition("\n")[0])
        busy = fragile.chat("hello")
        fragile.command("revoke", "other")
        assert future.result().status_code == 401
    with closing(sqlite3.connect(fragile.home / "plugins/api/api.sqlite")) as database:
        [former] = database.execute("PRAGMA user_version").fetchone()
        database.execute("PRAGMA user_version = 99")
        later = fragile.chat("hello")
        listed = fragile.command("list")
        database.execute(f"PRAGMA user_version = {former}")

    assert busy.status_code == 429
    assert later.status_code == 500
    assert "format 99" not in later.text
    assert listed.returncode == 1
    assert "upgrade nanobot-api" in listed.stderr
