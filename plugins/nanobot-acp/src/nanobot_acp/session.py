"""EditorSession: one conversation in an editor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias

from acp import schema
from acp.exceptions import RequestError
from loguru import logger
from pydantic import BaseModel, ValidationError

from nanobot_acp.calls import kind_of, locations_of, proposed
from nanobot_acp.prompt import INVALID_PARAMS
from nanobot_acp.transport import INVALID_REQUEST
from nanobot_acp.updates import Report, TurnView, replayed
from nanobot_core import (
    AgentClient,
    ApprovalRequested,
    DirectTurn,
    NanobotError,
    Requester,
    RunEvent,
    SessionPage,
    Ticket,
    TurnOutcome,
)

CHANNEL: Final = "acp"
MODEL: Final = "model"
"""Id of the option that chooses the model."""
DEFAULT: Final = "default"
"""Name with which the command /model returns to the configured model."""
MAX_MODELS: Final = 300
MODELS_LIMIT_S: Final = 10.0
"""Seconds for the list of models, which services may have to be asked for."""
PAGE: Final = 100
"""Messages that are replayed at once."""
_ID = re.compile(r"[0-9a-f]{32}")

AskPermission: TypeAlias = Callable[[BaseModel], Awaitable[schema.RequestPermissionResponse]]
Options: TypeAlias = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]


def key_of(session_id: str) -> str:
    """Return the key of the session in nanobot."""
    return f"{CHANNEL}:{session_id}"


def is_session_id(text: str) -> bool:
    """Whether an editor can have got this id from us."""
    return _ID.fullmatch(text) is not None


class EditorSession:
    """A conversation that is open in an editor.

    Args:
        session_id: its id.
        folder: working folder, absolute.
        client: the agent.
        report: sends updates to the editor.
        ask: asks the person at the editor.

    Attributes:
        id: its id.
    """

    def __init__(
        self, session_id: str, folder: str, client: AgentClient, report: Report, ask: AskPermission
    ) -> None:
        self.id: str = session_id
        self._folder = folder
        self._client = client
        self._report = report
        self._ask = ask
        self._running: asyncio.Task[TurnOutcome] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way."""
        return self._running is not None

    async def take_turn(
        self, text: str, keep: Callable[[], Awaitable[tuple[str, ...]]]
    ) -> TurnOutcome | None:
        """Answer a prompt.

        Args:
            text: what the person wrote.
            keep: keeps the files of the prompt and returns their paths.

        Returns:
            ``None`` if it was stopped.

        Raises:
            RequestError: another turn is under way.
            NanobotError: the agent cannot be reached.
        """
        view = TurnView(self._report, self._folder)

        async def work() -> TurnOutcome:
            turn = self._turn(text, media=await keep())
            return await self._client.take_turn(turn, view.show, self._decide)

        outcome = await self._run(work)
        if outcome is not None and text.startswith(f"/{MODEL}"):
            await self._report_options()
        return outcome

    async def stop(self) -> None:
        """Stop the turn that is under way, and wait for its end."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def replay(self) -> None:
        """Report all messages of the session."""
        page = await self._page()
        for end in range(PAGE, (page.total if page else 0) + PAGE, PAGE):
            page = await self._client.sessions.page(key_of(self.id), before=end, limit=PAGE)
            # The last page is not full, and begins where the one before it ends.
            known = end - PAGE - page.first_index if page else 0
            for update in replayed(page.messages[known:] if page else (), self._folder):
                await self._report(update)

    async def options(self) -> Options:
        """Return what the person can choose: the model."""
        try:
            async with asyncio.timeout(MODELS_LIMIT_S):
                names = list(await self._client.models())[:MAX_MODELS]
        except TimeoutError:
            logger.warning("the models are not known within {} seconds", MODELS_LIMIT_S)
            names = []
        chosen = await self._model()
        listed = dict.fromkeys([DEFAULT, chosen, *names])
        return [
            schema.SessionConfigOptionSelect(
                id=MODEL,
                name="Model",
                category="model",
                type="select",
                current_value=chosen,
                options=[
                    schema.SessionConfigSelectOption(
                        value=name, name="Configured model" if name == DEFAULT else name
                    )
                    for name in listed
                ],
            )
        ]

    async def set_option(self, option: str, value: str) -> None:
        """Choose the model of the session.

        Raises:
            RequestError: there is no such option, or the model cannot be used.
        """
        if option != MODEL:
            raise RequestError(INVALID_PARAMS, "the only option is 'model'")
        if not value.isprintable() or not value.strip():
            raise RequestError(INVALID_PARAMS, "expected the name of a model")

        async def choose() -> TurnOutcome:
            return await self._client.take_turn(self._turn(f"/{MODEL} {value}"), _ignore)

        outcome = await self._run(choose)
        if await self._model() != value:
            reason = (outcome.error or outcome.reply) if outcome else "the choice was cancelled"
            raise RequestError(INVALID_PARAMS, reason or "the model cannot be used")

    async def announce(self) -> None:
        """Report the slash commands."""
        commands = await self._client.commands()
        hint = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint="arguments"))
        await self._report(
            schema.AvailableCommandsUpdate(
                session_update="available_commands_update",
                available_commands=[
                    schema.AvailableCommand(name=name, description=summary, input=hint)
                    for name, summary in commands.items()
                ],
            )
        )

    async def _run(
        self, work: Callable[[], Coroutine[Any, Any, TurnOutcome]]
    ) -> TurnOutcome | None:
        """Run a turn so that `stop` can stop it; return ``None`` if it did."""
        if self._running is not None:
            text = "a prompt of this session is under way; wait for its end or cancel it"
            raise RequestError(INVALID_REQUEST, text)

        try:
            async with asyncio.TaskGroup() as group:
                task = self._running = group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            self._running = None
        return None if task.cancelled() else task.result()

    def _turn(self, text: str, media: tuple[str, ...] = ()) -> DirectTurn:
        requester = Requester(
            channel=CHANNEL,
            chat_id=self.id,
            sender_id="editor",
            session_key=key_of(self.id),
            authority="machine",
        )
        return DirectTurn(requester=requester, text=text, media=media, folder=self._folder)

    async def _decide(self, event: ApprovalRequested) -> Ticket:
        """Ask the person at the editor; anything but an answer we offered means no."""
        call = event.call
        options = [_option("allow_once", "Allow")]
        if event.may_always:
            options.append(_option("allow_always", "Always allow"))
        options.append(_option("reject_once", "Reject"))
        request = schema.RequestPermissionRequest(
            session_id=self.id,
            options=options,
            tool_call=schema.ToolCallUpdate(
                tool_call_id=call.id,
                title=event.question,
                kind=kind_of(call.name),
                status="pending",
                locations=locations_of(call, self._folder),
                raw_input=call.arguments,
                content=proposed(call, self._folder) or None,
            ),
        )
        try:
            outcome = (await self._ask(request)).outcome
        except (RequestError, ValidationError) as error:
            logger.warning("the editor cannot answer a question about a call: {}", error)
            return Ticket(False, "editor")
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        always = event.may_always and chosen == "allow_always"
        return Ticket(always or chosen == "allow_once", "editor", always=always)

    async def _page(self) -> SessionPage | None:
        return await self._client.sessions.page(key_of(self.id), limit=1)

    async def _model(self) -> str:
        page = await self._page()
        return page.model or DEFAULT if page is not None else DEFAULT

    async def _report_options(self) -> None:
        try:
            options = await self.options()
        except NanobotError as error:
            logger.warning("the editor does not know the chosen model: {}", error)
            return
        await self._report(
            schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options)
        )


def _option(kind: schema.PermissionOptionKind, name: str) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=kind, name=name, kind=kind)


async def _ignore(_event: RunEvent) -> None:
    """Ignore the events of a turn."""
