"""RemoteClient: the agent of the running gateway, for programs in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from nanobot_core.app.client import CHANGE_LIMIT_S
from nanobot_core.app.wire import ControlError, from_json
from nanobot_core.contracts.client import OfferedTool, SessionEntry, SessionHit, SessionPage
from nanobot_core.errors import SessionError
from nanobot_core.events import ApprovalRequested, ToolOutcome
from nanobot_core.messages import message_from_json, message_to_json

if TYPE_CHECKING:
    from nanobot_core.app.client import Answering, ControlClient
    from nanobot_core.assignment import Requester
    from nanobot_core.contracts.client import Decide, DirectTurn, EventSink, SessionAccess
    from nanobot_core.events import TurnOutcome
    from nanobot_core.messages import JsonObject, JsonValue, Message


class RemoteClient:
    """An `AgentClient`.

    Args:
        control: a client of the gateway.

    Attributes:
        sessions: the sessions.
    """

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self.sessions: RemoteSessions = RemoteSessions(control)

    async def take_turn(
        self, turn: DirectTurn, on_event: EventSink, decide: Decide | None = None
    ) -> TurnOutcome:
        """Answer a message; see `AgentClient.take_turn`."""
        asked: JsonObject = {
            "text": turn.text,
            "session": turn.requester.session_key,
            "requester": asdict(turn.requester),
            "media": list(turn.media),
            "model": turn.model,
            "folder": turn.folder,
        }
        outcome = await self._control.turn(asked, on_event, _answering(decide))
        await on_event(outcome)
        return outcome

    async def tools(self, requester: Requester) -> Sequence[OfferedTool]:
        """Return the tools that the requester may call."""
        found = await self._control.call("tools", requester=asdict(requester))
        return [from_json(OfferedTool, each) for each in _items(found)]

    async def call_tool(
        self,
        requester: Requester,
        name: str,
        arguments: JsonObject,
        decide: Decide | None = None,
    ) -> ToolOutcome:
        """Call one tool; see `AgentClient.call_tool`."""
        asked: JsonObject = {
            "requester": asdict(requester),
            "name": name,
            "arguments": arguments,
            "decides": decide is not None,
        }
        return from_json(
            ToolOutcome, await self._control.ask("call_tool", asked, _answering(decide))
        )

    async def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""
        found = await self._control.call("commands")
        return {name: str(text) for name, text in found.items()} if isinstance(found, dict) else {}

    async def models(self) -> Sequence[str]:
        """Return the names of presets and of all known models that can be used."""
        found = await self._control.call("models", limit_s=CHANGE_LIMIT_S)
        return [str(each) for each in _items(found)]


class RemoteSessions:
    """A `SessionAccess`; `answer_sessions` is the other end.

    Args:
        control: a client of the gateway.
    """

    def __init__(self, control: ControlClient) -> None:
        self._control = control

    async def entries(self, *, offset: int = 0, limit: int = 50) -> Sequence[SessionEntry]:
        """Return sessions, the latest first."""
        found = await self._ask("entries", offset=offset, limit=limit)
        return [from_json(SessionEntry, each) for each in _items(found)]

    async def page(
        self, key: str, *, before: int | None = None, limit: int = 50
    ) -> SessionPage | None:
        """Return the newest messages of a session, or those before a number."""
        found = await self._ask("page", key=key, before=before, limit=limit)
        if not isinstance(found, dict):
            return None
        return SessionPage(
            entry=from_json(SessionEntry, found.get("entry")),
            messages=tuple(map(_message, _items(found.get("messages")))),
            first_index=_number(found, "first_index"),
            total=_number(found, "total"),
            model=str(found.get("model") or ""),
            is_busy=found.get("is_busy") is True,
        )

    async def search(self, text: str, *, limit: int = 50) -> Sequence[SessionHit]:
        """Return messages that contain `text`, of the latest sessions first."""
        found = await self._ask("search", text=text, limit=limit)
        return [
            SessionHit(
                key=str(each.get("key")),
                index=_number(each, "index"),
                message=_message(each.get("message")),
            )
            for each in _items(found)
            if isinstance(each, dict)
        ]

    async def set_title(self, key: str, title: str) -> bool:
        """Give a session a title, empty for none; False if it does not exist."""
        return await self._ask("set_title", key=key, title=title) is True

    async def create(self, key: str, messages: Sequence[Message]) -> None:
        """Create a session with a history."""
        await self._ask("create", key=key, messages=[message_to_json(each) for each in messages])

    async def branch(self, key: str, until: int, new_key: str) -> bool:
        """Create a session with the messages of another one before the number `until`."""
        return await self._ask("branch", key=key, until=until, new_key=new_key) is True

    async def delete(self, key: str) -> bool:
        """Delete a session for good; False if it does not exist."""
        return await self._ask("delete", key=key) is True

    async def _ask(self, method: str, **arguments: JsonValue) -> JsonValue:
        try:
            return await self._control.call(
                "sessions", limit_s=CHANGE_LIMIT_S, method=method, **arguments
            )
        except ControlError as error:
            raise SessionError(str(arguments.get("key") or "*"), str(error)) from error


async def answer_sessions(sessions: SessionAccess, method: str, asked: JsonObject) -> JsonValue:
    """Return the answer to a request of `RemoteSessions`.

    Raises:
        ControlError: the request is malformed.
        SessionError: it cannot be done.
    """
    key, before = str(asked.get("key") or ""), asked.get("before")
    match method:
        case "entries":
            entries = await sessions.entries(
                offset=_number(asked, "offset"), limit=_number(asked, "limit")
            )
            return [asdict(each) for each in entries]
        case "page":
            page = await sessions.page(
                key,
                before=before if isinstance(before, int) else None,
                limit=_number(asked, "limit"),
            )
            if page is None:
                return None
            messages: list[JsonValue] = [message_to_json(each) for each in page.messages]
            return {**asdict(page), "messages": messages}
        case "search":
            hits = await sessions.search(str(asked.get("text")), limit=_number(asked, "limit"))
            return [
                {"key": each.key, "index": each.index, "message": message_to_json(each.message)}
                for each in hits
            ]
        case "set_title":
            return await sessions.set_title(key, str(asked.get("title") or ""))
        case "create":
            await sessions.create(key, list(map(_message, _items(asked.get("messages")))))
            return None
        case "branch":
            return await sessions.branch(key, _number(asked, "until"), str(asked.get("new_key")))
        case "delete":
            return await sessions.delete(key)
    msg = f"sessions have no method '{method}'; the gateway may have another version, restart it"
    raise ControlError(msg)


def _answering(decide: Decide | None) -> Answering:
    async def answer(question: JsonObject) -> Literal["yes", "always", "no"]:
        if decide is None:
            return "no"
        ticket = await decide(from_json(ApprovalRequested, question.get("event")))
        if ticket is None or not ticket.allowed:
            return "no"
        return "always" if ticket.always else "yes"

    return answer


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _number(found: JsonObject, name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int):
        msg = f"the control socket received no number '{name}'"
        raise ControlError(msg)
    return value


def _message(value: JsonValue) -> Message:
    if not isinstance(value, dict):
        msg = "the control socket received a message that is not an object"
        raise ControlError(msg)
    return message_from_json(value)
