"""Sessions, stored responses, repeated requests, and clients that disappear."""

from __future__ import annotations

import http.client
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest

if TYPE_CHECKING:
    from conftest import Gateway

SESSION = "X-Nanobot-Session"


def _texts(gateway: Gateway, word: str) -> list[str]:
    messages = gateway.model.asked(word).body["messages"][1:]
    return [str(message["content"]).rpartition("\n")[2] for message in messages]


def _respond(gateway: Gateway, text: str, **fields: Any) -> dict[str, Any]:
    with gateway.client() as client:
        response = client.post("/responses", json={"model": "nanobot", "input": text, **fields})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_named_session_is_continued_by_its_last_message(gateway: Gateway) -> None:
    header = {SESSION: "kitchen"}
    gateway.said("first-a", headers=header)
    history = [{"role": "user", "content": "ignored"}, {"role": "user", "content": "second-a"}]
    gateway.said("", messages=history, headers=header)

    assert _texts(gateway, "second-a") == ["first-a", "You said: first-a", "second-a"]


def test_sessions_of_another_key_are_not_reached(gateway: Gateway) -> None:
    other = gateway.add_key("other-program")
    gateway.said("secret-b", headers={SESSION: "shared"})
    body = {"model": "nanobot", "messages": [{"role": "user", "content": "mine-b"}]}

    with gateway.client(other) as client:
        client.post("/chat/completions", json=body, headers={SESSION: "shared"})

    assert _texts(gateway, "mine-b") == ["mine-b"]


def test_user_names_a_session_only_if_the_key_allows_it(gateway: Gateway) -> None:
    key = gateway.add_key("by-user", "--user-names-session")

    def ask(text: str, **headers: str) -> httpx.Response:
        message = {"role": "user", "content": text}
        body = {"model": "nanobot", "messages": [message], "user": "ada@example.org"}
        with gateway.client(key) as client:
            return client.post("/chat/completions", json=body, headers=headers)

    ask("first-c")
    ask("second-c")
    gateway.said("first-d", user="ada@example.org")
    gateway.said("second-d", user="ada@example.org")
    contradiction = ask("third-c", **{SESSION: "another"})

    assert _texts(gateway, "second-c") == ["first-c", "You said: first-c", "second-c"]
    assert _texts(gateway, "second-d") == ["second-d"]
    assert contradiction.status_code == 400
    assert contradiction.json()["error"]["param"] == "user"


@pytest.mark.parametrize("name", ["../../x", "a b", "a:b", "x" * 129])
def test_names_that_no_session_can_have_are_refused(gateway: Gateway, name: str) -> None:
    response = gateway.chat("hello", headers={SESSION: name})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_session"


def test_responses_are_continued_and_branched(gateway: Gateway) -> None:
    first = _respond(gateway, "one-e")
    second = _respond(gateway, "two-e", previous_response_id=first["id"])
    _respond(gateway, "three-e", previous_response_id=second["id"])
    _respond(gateway, "branch-e", previous_response_id=first["id"])

    assert second["previous_response_id"] == first["id"]
    assert second["output"][0]["content"][0]["text"] == "You said: two-e"
    answers = ["one-e", "You said: one-e"]
    assert _texts(gateway, "three-e") == [*answers, "two-e", "You said: two-e", "three-e"]
    assert _texts(gateway, "branch-e") == [*answers, "branch-e"]


def test_a_response_of_another_key_does_not_exist(gateway: Gateway) -> None:
    first, other = _respond(gateway, "one-f"), gateway.add_key("thief")

    with gateway.client(other) as client:
        response = client.post(
            "/responses",
            json={"model": "nanobot", "input": "x", "previous_response_id": first["id"]},
        )

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "previous_response_not_found"


def test_a_response_that_is_not_stored_leaves_nothing(gateway: Gateway) -> None:
    before = gateway.sessions()

    first = _respond(gateway, "one-g", store=False)

    assert gateway.sessions() <= before
    with gateway.client() as client:
        body = {"model": "nanobot", "input": "x", "previous_response_id": first["id"]}
        assert client.post("/responses", json=body).status_code == 400


def test_a_repeated_request_gets_the_same_answer_without_a_second_turn(gateway: Gateway) -> None:
    header, text = {"Idempotency-Key": uuid4().hex}, f"once-{uuid4().hex}"

    first = gateway.chat(text, headers=header)
    again = gateway.chat(text, headers=header)

    assert first.json() == again.json()
    assert sum(text in json.dumps(one.body) for one in gateway.model.requests) == 1


def test_a_repeated_stream_is_sent_again(gateway: Gateway) -> None:
    header, text = {"Idempotency-Key": uuid4().hex}, f"once-{uuid4().hex}"

    first = gateway.chat(text, headers=header, stream=True).text
    again = gateway.chat(text, headers=header, stream=True).text

    assert text in again
    assert again.endswith("data: [DONE]\n\n")
    assert (
        json.loads(again[6:].partition("\n")[0])["id"]
        == json.loads(first[6:].partition("\n")[0])["id"]
    )


def test_requests_at_the_same_time_share_one_turn(gateway: Gateway) -> None:
    header, text = {"Idempotency-Key": uuid4().hex}, f"once-{uuid4().hex}"

    with ThreadPoolExecutor(5) as pool:
        answers = [*pool.map(lambda _: gateway.chat(text, headers=header).json(), range(5))]

    assert all(answer == answers[0] for answer in answers)
    assert sum(text in json.dumps(one.body) for one in gateway.model.requests) == 1


def test_a_key_for_another_request_is_a_conflict(gateway: Gateway) -> None:
    header = {"Idempotency-Key": uuid4().hex}
    gateway.said("hello", headers=header)

    for response in (
        gateway.chat("other", headers=header),
        gateway.chat("hello", headers={**header, SESSION: "elsewhere"}),
    ):
        assert response.status_code == 409
        assert response.json()["error"]["code"] == "idempotency_key_conflict"
        assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wanted", ["nanobot", "custom/m"])
def test_a_client_that_disconnects_stops_its_turn(
    gateway: Gateway, stream: bool, wanted: str
) -> None:
    before, mark = gateway.sessions(), uuid4().hex
    body = {
        "model": wanted,
        "stream": stream,
        "messages": [{"role": "user", "content": f"{mark}\nstall"}],
    }
    header = {"Idempotency-Key": mark}
    proof = {"Authorization": f"Bearer {gateway.key}", **header}
    address = httpx.URL(gateway.url)
    line = http.client.HTTPConnection(address.host, address.port)
    content = json.dumps(body)
    line.request("POST", f"{address.path}/chat/completions", content, proof)
    asked = gateway.model.asked(mark)
    line.close()

    gateway.until(asked.disconnected.is_set)
    gateway.until(lambda: gateway.sessions() <= before)
    with gateway.client() as client:
        again = client.post("/chat/completions", content=content, headers=header)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "request_cancelled"
    assert again.headers["x-should-retry"] == "false"


def test_a_kill_leaves_no_session_and_no_second_turn(fragile: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        before, mark = fragile.sessions(), uuid4().hex
        header, text = {"Idempotency-Key": mark}, f"{mark}\nstall"
        future = pool.submit(fragile.chat, text, headers=header)
        fragile.model.asked(mark)
        fragile.kill()
        with pytest.raises(httpx.HTTPError):
            future.result()
    assert not fragile.sessions() <= before

    fragile.start()

    fragile.until(lambda: fragile.sessions() <= before)
    again = fragile.chat(text, headers=header)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "request_interrupted"


def test_a_stopping_gateway_ends_streams_with_an_error(fragile: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        mark = uuid4().hex
        future = pool.submit(fragile.chat, f"{mark}\nstall", stream=True)
        fragile.model.asked(mark)
        fragile.stop()
        answer = future.result()

    assert '"error"' in answer.text.rstrip().rpartition("\n\n")[2]
    assert "[DONE]" not in answer.text


def test_old_responses_are_deleted_with_their_sessions(fragile: Gateway) -> None:
    before = fragile.sessions()
    first = _respond(fragile, "one-h")
    assert len(fragile.sessions() - before) == 1
    fragile.kill()
    with closing(sqlite3.connect(fragile.home / "plugins/api/api.sqlite")) as database, database:
        database.execute("UPDATE responses SET at_s = at_s - 100000")

    fragile.start()

    fragile.until(lambda: fragile.sessions() <= before)
    with fragile.client() as client:
        body = {"model": "nanobot", "input": "x", "previous_response_id": first["id"]}
        assert client.post("/responses", json=body).status_code == 400
