"""The requests that a running gateway answers over its control socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.app.reloading import Reloaded, describe
from nanobot_core.app.remote import answer_sessions
from nanobot_core.app.wire import ControlError, event_to_json, from_json
from nanobot_core.assignment import Requester
from nanobot_core.contracts.client import DirectTurn
from nanobot_core.events import ToolCallStarted, TurnOutcome
from nanobot_core.ids import new_id
from nanobot_core.messages import OutboundMessage

if TYPE_CHECKING:
    from nanobot_core.app.control import Connection, Handler
    from nanobot_core.app.gateway import Gateway
    from nanobot_core.events import RunEvent
    from nanobot_core.messages import JsonValue


def handlers(
    gateway: Gateway, request_stop: Callable[[], None], request_restart: Callable[[], None]
) -> Mapping[str, Handler]:
    """Return the handler of each request, by name."""

    async def stop(_asked: Connection) -> JsonValue:
        request_stop()
        return None

    async def restart(_asked: Connection) -> JsonValue:
        request_restart()
        return None

    return {
        "status": partial(_status, gateway),
        "stop": stop,
        "restart": restart,
        "commands": partial(_commands, gateway),
        "turn": partial(_turn, gateway),
        "tools": partial(_tools, gateway),
        "call_tool": partial(_call_tool, gateway),
        "models": partial(_models, gateway),
        "sessions": partial(_sessions, gateway),
        "send": partial(_send, gateway),
        "dead_letters": partial(_dead_letters, gateway),
        "reload": partial(_reload, gateway),
        "plugins": partial(_plugins, gateway),
        "cool_downs": partial(_cool_downs, gateway),
        "reload_plugin": partial(_reload_plugin, gateway),
        "retry": lambda asked: gateway.bus.revive(asked.text("id")),
        "drop": lambda asked: gateway.bus.drop(asked.text("id")),
        "delete_session": lambda asked: gateway.bot.pipeline.delete_session(asked.text("key")),
    }


async def _status(gateway: Gateway, _asked: Connection) -> JsonValue:
    return asdict(await gateway.status())


async def _reload(gateway: Gateway, _asked: Connection) -> JsonValue:
    done = await gateway.reloader.reload()
    wrong = [problem.path for problem in done.problems if problem.level == "error"]
    return {"text": describe(done), "failed": [*done.change.failed, *wrong]}


async def _plugins(gateway: Gateway, _asked: Connection) -> JsonValue:
    return [asdict(report) for report in gateway.bot.plugins.reports()]


async def _cool_downs(gateway: Gateway, _asked: Connection) -> JsonValue:
    return [asdict(each) for each in gateway.bot.cool_downs.current()]


async def _reload_plugin(gateway: Gateway, asked: Connection) -> JsonValue:
    change = await gateway.reloader.reload_plugin(asked.text("id"))
    return describe(Reloaded(change=change))


async def _commands(gateway: Gateway, _asked: Connection) -> JsonValue:
    return dict(gateway.commands())


async def _turn(gateway: Gateway, asked: Connection) -> JsonValue:
    """Answer a message from a terminal, and send it the events of the turn."""
    if not gateway.ready.is_set():
        msg = "the gateway is starting or stopping; try again in a moment"
        raise ControlError(msg)
    asked_by = asked.request.get("requester")
    terminal = {"session_key": asked.text("session"), "authority": "machine"}
    media, model = asked.request.get("media"), asked.request.get("model")

    async def send(event: RunEvent) -> None:
        if isinstance(event, TurnOutcome):
            return  # the outcome is the result
        if isinstance(event, ToolCallStarted) and asked.request.get("confirms") is True:
            # An editor reads the files as they are before the call.
            await asked.ask(event_to_json(event))
        else:
            await asked.send(event_to_json(event))

    turn = DirectTurn(
        requester=from_json(Requester, asked_by or terminal),
        text=asked.text("text"),
        media=tuple(str(path) for path in media) if isinstance(media, list) else (),
        model=model if isinstance(model, str) else None,
        folder=str(asked.request.get("folder") or ""),
    )
    return asdict(await gateway.client.take_turn(turn, send, asked.decide))


async def _tools(gateway: Gateway, asked: Connection) -> JsonValue:
    requester = from_json(Requester, asked.request.get("requester"))
    return [asdict(each) for each in await gateway.client.tools(requester)]


async def _call_tool(gateway: Gateway, asked: Connection) -> JsonValue:
    arguments = asked.request.get("arguments")
    outcome = await gateway.client.call_tool(
        from_json(Requester, asked.request.get("requester")),
        asked.text("name"),
        arguments if isinstance(arguments, dict) else {},
        asked.decide if asked.request.get("decides") is True else None,
    )
    return asdict(outcome)


async def _models(gateway: Gateway, _asked: Connection) -> JsonValue:
    return list(await gateway.client.models())


async def _sessions(gateway: Gateway, asked: Connection) -> JsonValue:
    return await answer_sessions(gateway.client.sessions, asked.text("method"), asked.request)


async def _send(gateway: Gateway, asked: Connection) -> JsonValue:
    """Send a message to a chat."""
    message = OutboundMessage(
        channel=asked.text("channel"),
        chat_id=asked.text("chat_id"),
        content=asked.text("text"),
        idempotency_key=new_id(),
    )
    await gateway.channels.send(message)
    return None


async def _dead_letters(gateway: Gateway, _asked: Connection) -> JsonValue:
    return [asdict(letter) for letter in await gateway.bus.dead_letters()]
