"""The contracts of memory backends, services and transcription providers, as test suites."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.contracts.agent import AgentTask
from nanobot_core.contracts.memory import HistorySpan, MemoryBackend, MemoryScope
from nanobot_core.contracts.service import Service
from nanobot_core.contracts.transcription import TranscriptionProvider
from nanobot_core.errors import ProviderError, Unreachable
from nanobot_core.messages import Message
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.suite import ConformanceSuite, ContextSuite, ends_within

_LIMIT_S = 5.0
_PASSES = 50
_NAMES = ("sender/telegram:1001", "chat/telegram:-2002")
_SAID = {
    _NAMES[0]: ("My dog is called Quixote.", "Noted.", "And my cat is Dulcinea."),
    _NAMES[1]: ("I drive a Trabant.", "Noted.", "It is painted turquoise."),
}
_SECRETS = {_NAMES[0]: ("Quixote", "Dulcinea"), _NAMES[1]: ("Trabant", "turquoise")}
_LARGE_CHARS = 2_000_000
_MAX_CONTEXT_CHARS = 200_000


class MemoryContract(ContextSuite):
    """What every memory backend must do. Supply `make_memory`.

    The agent of the context answers each task with the last message of its request.
    """

    @abstractmethod
    def make_memory(self, context: FakePluginContext) -> MemoryBackend:
        """Return a backend whose data belongs to `context`; called again as after a restart."""

    async def test_memories_are_separate(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (context, memory):
            for name in _NAMES:
                await memory.archive(_span(name))
                await memory.consolidate(_span(name), 1, must=True)
            await context.settle()
            for name, other in (_NAMES, tuple(reversed(_NAMES))):
                read = await _shown(memory, name)
                mixed = [word for word in _SECRETS[other] if word in read]
                assert not mixed, (
                    f"the memory '{name}' shows what was said in '{other}' ({', '.join(mixed)}); "
                    "keep what belongs to a MemoryScope under its name"
                )

    async def test_a_session_of_one_memory_reads_nothing_of_another_memory(
        self, tmp_path: Path
    ) -> None:
        async with self._opened(tmp_path) as (context, memory):
            await memory.archive(_span(_NAMES[0]))
            await context.settle()
            scope = MemoryScope(name=_NAMES[1], session_key=_span(_NAMES[0]).scope.session_key)
            read = " ".join(block.text for block in await memory.context(scope))
            assert not [word for word in _SECRETS[_NAMES[0]] if word in read], (
                "the same session gets what it said under another memory's name; a session can "
                "change its memory when memory.scope is changed"
            )

    async def test_what_was_archived_is_the_same_after_a_restart(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (context, memory):
            await memory.archive(_span(_NAMES[0]))
            await context.settle()
            before = await _shown(memory, _NAMES[0])
            assert await _shown(memory, _NAMES[0]) == before, (
                "context changes from call to call although nothing new was said; that voids the "
                "prompt cache of the provider"
            )
            await memory.aclose()
            again = self.make_memory(context)
            assert await _shown(again, _NAMES[0]) == before, (
                "context differs after a restart; write what was archived before archive returns"
            )
            await again.aclose()

    async def test_a_span_that_comes_twice_is_kept_once(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (context, memory):
            await memory.archive(_span(_NAMES[0]))
            await context.settle()
            before = await _shown(memory, _NAMES[0])
            await memory.aclose()
            again = self.make_memory(context)
            await again.archive(_span(_NAMES[0]))
            await context.settle()
            assert await _shown(again, _NAMES[0]) == before, (
                "a span that was archived already is kept again; after a crash the core passes it "
                "twice, with the same session_key and first_index"
            )
            await again.aclose()

    async def test_consolidation_leaves_a_user_message_first(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (_, memory):
            span = _span(_NAMES[0])
            fits = await memory.consolidate(span, 100_000, must=False)
            assert fits.messages == 0, (
                f"consolidate takes {fits.messages} messages of a history that fits, expected 0"
            )
            taken = (await memory.consolidate(span, 1, must=True)).messages
            starts = {i for i, message in enumerate(span.messages) if message.role == "user"}
            assert taken in {*starts, len(span.messages)}, (
                f"consolidate takes {taken} messages; the first one that remains must be a user's"
            )

    async def test_a_model_that_fails_loses_nothing(self, tmp_path: Path) -> None:
        def fail(task: AgentTask) -> str:
            raise Unreachable("http://127.0.0.1:9", "no answer")

        async with self._opened(tmp_path) as (context, memory):
            context.agent.answer = fail
            await memory.archive(_span(_NAMES[0]))
            await memory.consolidate(_span(_NAMES[1]), 1, must=True)
            await context.settle()

    async def test_a_large_message_does_not_fill_the_prompt(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (context, memory):
            large = Message(role="user", content="word " * (_LARGE_CHARS // 5))
            span = replace(_span(_NAMES[0]), messages=(large,), tokens=(_LARGE_CHARS // 5,))
            await memory.archive(span)
            await context.settle()
            shown = len(await _shown(memory, _NAMES[0]))
            assert shown <= _MAX_CONTEXT_CHARS, (
                f"after a message of {_LARGE_CHARS:,} characters, context returns {shown:,}; bound "
                "what is kept and what is shown"
            )

    async def test_abilities_work(self, tmp_path: Path) -> None:
        async with self._opened(tmp_path) as (_, memory):
            scope, other = MemoryScope(name=_NAMES[0]), MemoryScope(name=_NAMES[1])
            if "remember" not in memory.abilities:
                return
            entry = await memory.remember(scope, "The garage code is 4711.")
            if "search" in memory.abilities:
                found = [each.text for each in await memory.search(scope, "garage code", 5)]
                assert any("4711" in text for text in found), "search misses what was remembered"
                assert not await memory.search(other, "garage code", 5), (
                    "search finds what another memory remembers"
                )
            if "entries" in memory.abilities:
                assert entry.id in [each.id for each in await memory.entries(scope)]
            if "forget" in memory.abilities:
                assert (await memory.forget(other, entry.id)).entries == 0, (
                    "forget removes an entry of another memory"
                )
                assert (await memory.forget(scope, entry.id)).entries == 1
                assert "4711" not in await _shown(memory, _NAMES[0])
                assert (await memory.forget(scope, entry.id)).entries == 0

    @asynccontextmanager
    async def _opened(
        self, tmp_path: Path
    ) -> AsyncIterator[tuple[FakePluginContext, MemoryBackend]]:
        async with self.make_context(tmp_path) as context, asyncio.timeout(_LIMIT_S):
            memory = self.make_memory(context)
            yield context, memory
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


def _span(name: str) -> HistorySpan:
    first, answer, second = _SAID[name]
    messages = (
        Message(role="user", content=first),
        Message(role="assistant", content=answer),
        Message(role="user", content=second),
    )
    scope = MemoryScope(name=name, session_key=name.partition("/")[2])
    return HistorySpan(scope=scope, messages=messages, tokens=(10, 5, 10))


async def _shown(memory: MemoryBackend, name: str) -> str:
    scope = MemoryScope(name=name, session_key=name.partition("/")[2])
    return "\n".join(block.text for block in await memory.context(scope))
