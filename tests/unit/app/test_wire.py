"""What goes over the control socket comes out as it went in."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from nanobot_core import events
from nanobot_core.app.wire import (
    ControlError,
    event_from_json,
    event_to_json,
    from_json,
    read_line,
)
from nanobot_core.contracts.service import GatewayStatus
from nanobot_core.events import StreamRestarted, TurnOutcome
from nanobot_core.messages import JsonObject, OutboundMessage

pytestmark = pytest.mark.anyio
TEXT = st.text()
st.register_type_strategy(
    OutboundMessage,
    st.builds(
        OutboundMessage,
        channel=TEXT,
        chat_id=TEXT,
        content=TEXT,
        media=st.lists(TEXT).map(tuple),
        metadata=st.dictionaries(TEXT, TEXT),
    ),
)


@pytest.mark.parametrize("kind", get_args(events.RunEvent), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_comes_out_as_it_went_in(kind: type, data: st.DataObject) -> None:
    event = data.draw(_strategy(kind))

    line = json.dumps(event_to_json(event))
    assert event_from_json(json.loads(line)) == event


def _strategy(kind: type) -> st.SearchStrategy[Any]:
    """Build instances whose open fields are plain JSON."""
    from nanobot_core.app.wire import _hints

    if not (is_dataclass(kind) and isinstance(kind, type)):
        return st.from_type(kind)
    hints = _hints(kind)
    plain_json = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT)
    built: dict[str, st.SearchStrategy[Any]] = {}
    for item in fields(kind):
        hint = hints[item.name]
        if "JsonValue" in str(hint) or str(hint).startswith("dict["):
            built[item.name] = plain_json
        elif hint is float:
            built[item.name] = st.floats(allow_nan=False)
        elif hint == float | None:
            built[item.name] = st.none() | st.floats(allow_nan=False)
        else:
            built[item.name] = _strategy(hint)
    return st.builds(kind, **built)


def test_an_event_of_a_newer_version_is_left_out() -> None:
    assert event_from_json({"type": "MiracleHappened", "event": {}}) is None


def test_a_field_of_a_newer_version_is_left_out() -> None:
    content: JsonObject = {"type": "StreamRestarted", "event": {"reason": "a", "colour": "red"}}

    assert event_from_json(content) == StreamRestarted(reason="a")


@pytest.mark.parametrize("content", [None, 1, "x", [], {}, {"turn": 1}, {"turn": {"id": 1}}])
def test_what_does_not_fit_is_told(content: object) -> None:
    with pytest.raises(ControlError, match="invalid TurnOutcome"):
        from_json(TurnOutcome, content)


@given(data=st.data())
def test_the_status_comes_out_as_it_went_in(data: st.DataObject) -> None:
    status = data.draw(st.from_type(GatewayStatus))

    line = json.dumps(asdict(status), default=str)
    found = from_json(GatewayStatus, json.loads(line))
    assert json.dumps(asdict(found), default=str) == line


@given(st.binary())
async def test_any_line_is_an_object_or_an_error(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    try:
        found = await read_line(reader)
    except ControlError:
        return
    assert found is None or isinstance(found, dict)
