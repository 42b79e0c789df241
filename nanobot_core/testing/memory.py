"""The contracts of memory backends, services and transcription providers, as test suites."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.contracts.memory import MemoryBackend
from nanobot_core.contracts.service import Service
from nanobot_core.contracts.transcription import TranscriptionProvider
from nanobot_core.errors import ProviderError
from nanobot_core.messages import Message
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.suite import ConformanceSuite, ContextSuite, ends_within

_LIMIT_S = 5.0
_PASSES = 50
_CHATS = ("telegram:1001", "telegram:2002")
_SAID = {
    _CHATS[0]: ("My dog is called Quixote.", "Noted.", "And my cat is Dulcinea."),
    _CHATS[1]: ("I drive a Trabant.", "Noted.", "It is painted turquoise."),
}
_SECRETS = {_CHATS[0]: ("Quixote", "Dulcinea"), _CHATS[1]: ("Trabant", "turquoise")}


class MemoryContract(ContextSuite):
    """What every memory backend must do. Supply `make_memory`."""

    @abstractmethod
    def make_memory(self, context: FakePluginContext) -> MemoryBackend:
        """Return a backend whose data belongs to `context`; called again as after a restart."""

    async def test_a_chat_reads_nothing_that_another_chat_said(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context, asyncio.timeout(_LIMIT_S):
            memory = self.make_memory(context)
            for chat in _CHATS:
                await memory.archive(chat, _messages(chat))
                await memory.consolidate(chat, _messages(chat), token_budget=1)
            for chat, other in (_CHATS, reversed(_CHATS)):
                read = await _text(memory, chat)
                mixed = [word for word in _SECRETS[other] if word in read]
                assert not mixed, (
                    f"context('{chat}') returns what '{other}' said ({', '.join(mixed)}); keep "
                    "what a session said under its session_key"
                )
            await memory.aclose()

    async def test_what_was_archived_is_the_same_after_a_restart(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context, asyncio.timeout(_LIMIT_S):
            memory = self.make_memory(context)
            await memory.archive(_CHATS[0], _messages(_CHATS[0]))
            before = await _text(memory, _CHATS[0])
            assert await _text(memory, _CHATS[0]) == before, (
                "context changes from call to call although nothing new was said; that voids the "
                "prompt cache of the provider"
            )
            await memory.aclose()
            memory = self.make_memory(context)
            assert await _text(memory, _CHATS[0]) == before, (
                "context differs after a restart; write what was archived before archive returns"
            )
            await memory.aclose()

    async def test_consolidation_leaves_a_user_message_first(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context, asyncio.timeout(_LIMIT_S):
            memory, messages = self.make_memory(context), _messages(_CHATS[0])
            fits = await memory.consolidate(_CHATS[0], messages, token_budget=100_000)
            assert fits == 0, (
                f"consolidate takes {fits} messages of a history that fits, expected 0"
            )
            taken = await memory.consolidate(_CHATS[0], messages, token_budget=1)
            starts = {i for i, message in enumerate(messages) if message.role == "user"}
            assert taken in {*starts, len(messages)}, (
                f"consolidate takes {taken} messages; the first one that remains must be a user's"
            )
            await memory.aclose()


class ServiceContract(ContextSuite):
    """What every service must do. Supply `make_service`."""

    @abstractmethod
    def make_service(self, context: FakePluginContext) -> Service:
        """Return a new service."""

    async def test_it_runs_until_it_is_cancelled(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context:
            run = _start(self.make_service(context).run())
            for _ in range(_PASSES):
                await asyncio.sleep(0)
            if run.done() and not run.cancelled() and run.exception() is not None:
                await run
            assert not run.done(), "run returns at once; it must work until it is cancelled"
            await _assert_cancellable(run, "run")

    async def test_it_can_be_started_again(self, tmp_path: Path) -> None:
        async with self.make_context(tmp_path) as context:
            for _ in range(2):
                run = _start(self.make_service(context).run())
                await asyncio.sleep(0)
                await _assert_cancellable(run, "run")


class TranscriberContract(ConformanceSuite):
    """What every transcription provider must do. Supply `serve`.

    Attributes:
        recording: an audio file that the provider accepts.
    """

    recording: Path

    @abstractmethod
    def serve(self, answer: str | None) -> AbstractAsyncContextManager[TranscriptionProvider]:
        """Return a provider whose service hears `answer`, or fails when it is ``None``."""

    @pytest.mark.parametrize("said", ["Grüße aus Köln", ""], ids=["speech", "silence"])
    async def test_it_returns_what_is_said(self, said: str) -> None:
        async with self.serve(said) as provider, asyncio.timeout(_LIMIT_S):
            assert await provider.transcribe(self.recording) == said

    async def test_a_failure_of_the_service_is_a_provider_error(self) -> None:
        async with self.serve(None) as provider, asyncio.timeout(_LIMIT_S):
            with pytest.raises(ProviderError):
                await provider.transcribe(self.recording)

    async def test_it_can_be_cancelled(self) -> None:
        async with self.serve("sample") as provider:
            run = _start(provider.transcribe(self.recording))
            await asyncio.sleep(0)
            await _assert_cancellable(run, "transcribe")


def _start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def _assert_cancellable(task: asyncio.Task[Any], name: str) -> None:
    task.cancel()
    assert await ends_within(task, _LIMIT_S) and task.cancelled(), (
        f"{name} swallows its cancellation; let asyncio.CancelledError pass"
    )


def _messages(chat: str) -> list[Message]:
    first, answer, second = _SAID[chat]
    return [
        Message(role="user", content=first),
        Message(role="assistant", content=answer),
        Message(role="user", content=second),
    ]


async def _text(memory: MemoryBackend, chat: str) -> str:
    return "\n".join(block.text for block in await memory.context(chat))
