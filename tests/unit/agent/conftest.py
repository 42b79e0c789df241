"""An agent runner between a scripted model and real tools, hooks and files."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from nanobot_core import (
    ChatRequest,
    HookError,
    LLMProvider,
    LLMResponse,
    Message,
    NoProvider,
    Tool,
    ToolCall,
    TurnInfo,
)
from nanobot_core.agent.always import AlwaysAllowed
from nanobot_core.agent.approval import ApprovalPolicy
from nanobot_core.agent.cool_down import CoolDowns
from nanobot_core.agent.loop import AgentRunner
from nanobot_core.agent.results import ResultFiles
from nanobot_core.agent.run import AgentRunResult, AgentRunSpec, Model
from nanobot_core.config.models import ApprovalRule
from nanobot_core.events import RunEvent, TextStreamed
from nanobot_core.folder import Folder
from nanobot_core.hooks.caller import Hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.paths import PathGuard
from nanobot_core.testing import FakeClock, FakeProvider, FakeStep
from nanobot_core.tools.registry import ToolRegistry
from tests.registrants import check_registrant

T = TypeVar("T")
Next: TypeAlias = Callable[[ChatRequest], Awaitable[LLMResponse]]
"""What a hook around model calls goes on with."""
TURN = TurnInfo(
    id="turn0001", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me|Me",
    source="cli", is_owner=True,
)  # fmt: skip


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
"""A whole image in the format PNG."""


class HastyClock(FakeClock):
    """A clock on which waiting takes no time and is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        await asyncio.sleep(0)


@dataclass
class Models:
    """Serves each model by the provider of its name; the default one is ``main``."""

    providers: dict[str, LLMProvider]

    async def model(self, name: str | None) -> Model:
        name = name or "main"
        if name not in self.providers:
            raise NoProvider(name, "configure one")
        return Model(
            name=name,
            wire_name=f"wire-{name}",
            provider=self.providers[name],
            provider_name=f"service-of-{name.partition('/')[0]}",
            plugin="models",
        )


@dataclass
class Bench:
    """Runs the agent and keeps all that it told."""

    workspace: Path
    clock: HastyClock = field(default_factory=HastyClock)
    registry: ToolRegistry = field(default_factory=ToolRegistry)
    events: list[RunEvent] = field(default_factory=list)
    recorded: list[tuple[Message, tuple[str, ...]]] = field(default_factory=list)
    reported: list[HookError] = field(default_factory=list)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    rules: Sequence[ApprovalRule] = ()
    approval_timeout_s: float = 5.0
    always: AlwaysAllowed | None = None
    turn: TurnInfo = TURN

    def __post_init__(self) -> None:
        self.ledger = HookStats(self.clock.monotonic_s)
        self.runtime = HookRuntime(spawn=self.spawn, report=self.reported.append, clock=self.clock)
        self.hooks = Hooks(self.runtime)
        self.cool_downs = CoolDowns(self.clock)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def plug(self, *plugins: object) -> None:
        """Compile `plugins` into the hooks, called p0, p1, … in this order."""
        registrants = [Registrant(f"p{n}", "1.0", plugin) for n, plugin in enumerate(plugins)]
        for registrant in registrants:
            check_registrant(registrant)
        self.hooks = build_hooks(registrants, self.runtime, self.ledger)

    def offer(self, *tools: Tool) -> None:
        for tool in tools:
            self.registry.register(tool, plugin="kit", version="1.0")

    async def on_event(self, event: RunEvent) -> None:
        self.events.append(event)

    async def record(self, messages: Sequence[Message], running: Sequence[ToolCall]) -> None:
        names = tuple(call.name for call in running)
        self.recorded += [(message, names) for message in messages]

    def spec(self, *messages: Message | str, **options: Any) -> AgentRunSpec:
        history = [
            Message(role="user", content=item) if isinstance(item, str) else item
            for item in messages or ("question",)
        ]
        values: dict[str, Any] = {
            "turn": self.turn,
            "messages": [Message(role="system", content="system"), *history],
            "tools": self.registry,
            "hooks": self.hooks,
            "files": PathGuard(self.workspace, restricted=False),
            "results": ResultFiles(Folder(self.workspace)),
            "on_event": self.on_event,
            "record": self.record,
            **options,
        }
        return AgentRunSpec(**values)

    async def run(
        self, *steps: FakeStep, spec: AgentRunSpec | None = None, **others: LLMProvider
    ) -> AgentRunResult:
        """Run a turn against a scripted model ``main``; it is kept as `provider`."""
        self.provider = FakeProvider(*steps)
        return await self.run_with(spec, main=self.provider, **others)

    async def run_with(
        self, spec: AgentRunSpec | None = None, **providers: LLMProvider
    ) -> AgentRunResult:
        runner = AgentRunner(
            Models(providers),
            clock=self.clock,
            policy=ApprovalPolicy(self.rules, self.approval_timeout_s, self.always),
            cool_downs=self.cool_downs,
        )
        async with asyncio.timeout(5):
            result = await runner.run(spec or self.spec())
            await self.hooks.queues.drain(5)
        return result

    @property
    def streamed(self) -> str:
        """The text that the user saw streaming."""
        return "".join(event.text for event in self.events if isinstance(event, TextStreamed))

    def told(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def results(self) -> list[str]:
        """Texts of the tool results as they were recorded."""
        return [message.text for message, _ in self.recorded if message.role == "tool"]


@pytest.fixture(autouse=True)
def no_exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tokens be estimated: LiteLLM brings an encoding, and points tiktoken to it for good."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    tasks = set(made.tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        _, stuck = await asyncio.wait(tasks, timeout=5)
        assert not stuck


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)
