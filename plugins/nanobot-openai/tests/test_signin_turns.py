"""Calls of people who are signed in: the headers, the tokens, and their renewal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanobot_core import (
    AuthenticationFailed,
    ChatRequest,
    Completed,
    ImageBlock,
    LLMProvider,
    Message,
    PrivateFile,
    ProviderSpec,
    TextBlock,
    Tokens,
    ToolCall,
    read_tokens,
    token_file,
)
from nanobot_core.testing import FakePluginContext, Reply
from nanobot_openai.codex import build_codex
from nanobot_openai.copilot import build_copilot
from nanobot_openai.signin_settings import CodexSettings, CopilotSettings
from nanobot_openai.testing import ChatGPTStandIn, CodexServer, CopilotServer, GitHubStandIn
from nanobot_openai.vendors import VENDORS

pytestmark = pytest.mark.anyio
SPECS: dict[str, ProviderSpec] = {spec.name: spec for spec in VENDORS}
ASKED = ChatRequest(
    model="gpt-5.3-codex", messages=(Message(role="user", content="hello"),), max_tokens=50
)
PROGRAM = """
import asyncio, sys
from pathlib import Path
from nanobot_core import ChatRequest, Message
from nanobot_core.clock import SystemClock
from nanobot_core.testing import FakePluginContext
from nanobot_openai.codex import build_codex
from nanobot_openai.signin_settings import CodexSettings
from nanobot_openai.vendors import VENDORS

async def main():
    folder, auth, api = sys.argv[1:]
    spec = next(spec for spec in VENDORS if spec.name == "openai_codex")
    ctx = FakePluginContext(Path(folder), plugin_id="openai", clock=SystemClock())
    provider = build_codex(ctx, spec, CodexSettings(auth_base=auth, api_base=api))
    messages = (Message(role="user", content="hello"),)
    print("ready", flush=True)
    answer = await provider.chat(ChatRequest(model="gpt-5.3-codex", messages=messages))
    print(answer.content)
    await provider.aclose()

asyncio.run(main())
"""


@dataclass
class Codex:
    """A person who is signed in to ChatGPT."""

    ctx: FakePluginContext
    auth: ChatGPTStandIn
    server: CodexServer
    provider: LLMProvider

    @property
    def file(self) -> PrivateFile:
        return token_file(self.ctx.data_dir, "openai_codex")

    def sign_in(self, expires_at: float | None) -> None:
        given = self.auth.issue()
        self.file.replace(
            Tokens(
                access=given["access_token"],
                refresh=given["refresh_token"],
                expires_at=expires_at,
                account="me@example.org",
                details={"account_id": self.auth.account},
            ).to_json()
        )


@pytest.fixture
async def codex(tmp_path: Path) -> AsyncIterator[Codex]:
    with ChatGPTStandIn(()) as auth:
        async with CodexServer() as server:
            server.auth = auth
            ctx = FakePluginContext(tmp_path, plugin_id="openai")
            settings = CodexSettings(auth_base=auth.url, api_base=server.url)
            provider = build_codex(ctx, SPECS["openai_codex"], settings)
            yield Codex(ctx, auth, server, provider)
            await provider.aclose()


async def test_codex_answers_streamed_and_whole(codex: Codex) -> None:
    codex.sign_in(None)
    await codex.provider.warm_up()
    streamed = [event async for event in codex.provider.chat_stream(ASKED)]
    whole = await codex.provider.chat(ASKED)

    assert isinstance(streamed[-1], Completed)
    assert streamed[-1].response.content == whole.content == "hello"
    (model,) = await codex.provider.list_models()
    assert (model.name, model.window_tokens) == ("scripted", 272_000)
    assert [request.path for request in codex.server.requests] == [
        "/backend-api/codex/responses"
    ] * 2
    assert codex.auth.count("/oauth/token") == 0


async def test_expired_tokens_are_renewed_before_a_call(codex: Codex) -> None:
    codex.sign_in(0.0)
    first = codex.auth.refresh

    assert (await codex.provider.chat(ASKED)).content == "hello"
    assert codex.auth.spent == {first}
    stored = read_tokens(codex.file)
    assert stored is not None
    assert (stored.access, stored.refresh) == (codex.auth.access, codex.auth.refresh)
    assert stored.account == "me@example.org"
    assert codex.ctx.concealed["openai_codex"] >= {codex.auth.access, codex.auth.refresh}


async def test_a_token_that_the_service_does_not_accept_is_renewed_at_the_retry(
    codex: Codex,
) -> None:
    codex.sign_in(None)
    codex.auth.access = "another"
    with pytest.raises(AuthenticationFailed) as caught:
        await codex.provider.chat(ASKED)
    assert caught.value.retryable
    assert (await codex.provider.chat(ASKED)).content == "hello"

    codex.server.extend(*[Reply(status=401, body=b"{}")] * 3)
    for _ in range(3):
        with pytest.raises(AuthenticationFailed, match="run nanobot providers login") as caught:
            await codex.provider.chat(ASKED)
        assert not caught.value.retryable
    assert codex.auth.count("/oauth/token") == 1, "another token does not help"


async def test_a_sign_in_that_has_ended_asks_for_another_one(codex: Codex) -> None:
    codex.sign_in(0.0)
    codex.auth.refresh = "revoked"
    with pytest.raises(
        AuthenticationFailed,
        match=r"ended the sign-in \(HTTP 401, invalid_grant\); run nanobot providers login openai-",
    ) as caught:
        await codex.provider.chat(ASKED)

    assert not caught.value.retryable
    assert "secret" not in str(caught.value)
    codex.file.remove()
    with pytest.raises(AuthenticationFailed, match="not signed in; run nanobot providers"):
        await codex.provider.chat(ASKED)


async def test_no_token_is_in_a_text_of_an_error(codex: Codex) -> None:
    codex.sign_in(None)
    echo = f"bad token {codex.auth.access}".encode()
    codex.server.extend(Reply(status=400, body=b'{"error": {"message": "%b"}}' % echo))
    with pytest.raises(Exception, match="HTTP 400") as caught:
        await codex.provider.chat(ASKED)

    assert codex.auth.access not in str(caught.value)


@pytest.fixture
async def copilot(
    tmp_path: Path,
) -> AsyncIterator[tuple[LLMProvider, CopilotServer, GitHubStandIn]]:
    with GitHubStandIn() as auth:
        async with CopilotServer(models=["gpt-x"]) as server:
            server.auth, auth.api_base, auth.token = auth, server.url, "ghu_1"
            ctx = FakePluginContext(tmp_path, plugin_id="openai")
            file = token_file(ctx.data_dir, "github_copilot")
            file.replace(Tokens(access="", refresh="ghu_1", account="octocat").to_json())
            settings = CopilotSettings(github_base=auth.url, github_api=auth.url)
            provider = build_copilot(ctx, SPECS["github_copilot"], settings)
            yield provider, server, auth
            await provider.aclose()


async def test_copilot_gets_its_headers_at_the_address_of_the_account(
    copilot: tuple[LLMProvider, CopilotServer, GitHubStandIn],
) -> None:
    provider, server, auth = copilot
    call = ToolCall(id="1", name="look", arguments={})
    picture = ImageBlock(media_type="image/png", data="aGVsbG8=")
    user = Message(role="user", content=(TextBlock("look"), picture))
    history = (
        user,
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="a cat", tool_call_id="1"),
    )
    for messages in ((Message(role="user", content="hello"),), (user,), history):
        answer = await provider.chat(ChatRequest(model="gpt-x", messages=messages))
        assert answer.content

    kinds = [
        (request.headers["x-initiator"], "copilot-vision-request" in request.headers)
        for request in server.requests
    ]
    assert kinds == [("user", False), ("user", True), ("agent", True)]
    assert auth.count("/copilot_internal/v2/token") == 1
    assert [model.name for model in await provider.list_models()] == ["gpt-x"]


async def test_a_withdrawn_access_asks_for_another_sign_in(
    copilot: tuple[LLMProvider, CopilotServer, GitHubStandIn],
) -> None:
    provider, _, auth = copilot
    auth.token = "ghu_2"
    with pytest.raises(AuthenticationFailed, match="login github-copilot"):
        await provider.chat(ASKED)


async def _start(codex: Codex) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(codex.ctx.data_dir.parents[1]),
        codex.auth.url,
        codex.server.url,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"ready\n"
    return process


async def _answer(process: asyncio.subprocess.Process) -> bytes:
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    return output.strip()


async def test_of_several_processes_one_renews_the_tokens_also_if_another_is_killed(
    codex: Codex,
) -> None:
    codex.sign_in(0.0)
    codex.auth.hold.clear()
    processes = [await _start(codex)]
    await asyncio.to_thread(codex.auth.arrived.acquire, timeout=20)
    processes += await asyncio.gather(_start(codex), _start(codex))
    processes[0].kill()
    await processes[0].wait()
    codex.auth.hold.set()

    assert await asyncio.gather(*map(_answer, processes[1:])) == [b"hello", b"hello"]
    assert codex.auth.count("/oauth/token") == 1
    stored = read_tokens(codex.file)
    assert stored is not None
    assert stored.refresh == codex.auth.refresh
    assert not list(codex.file.path.parent.glob(".*.tmp"))
