from __future__ import annotations

import asyncio

import pytest

from nanobot_core import DeclaredTool
from nanobot_core.errors import NameConflict, PluginRejected
from nanobot_core.events import ToolDefinition
from nanobot_core.tools import RegisteredTool, Tool, ToolRegistry, tool
from nanobot_core.tools.registry import RETRY_HINT, with_hint


def make(name: str, *, read_only: bool = False) -> Tool:
    @tool(name=name, read_only=read_only)
    def act(count: int = 1) -> str:
        """Act."""
        return "done" * count

    return act


def entry(name: str, plugin: str) -> RegisteredTool:
    made = make(name)
    return RegisteredTool(DeclaredTool.of(made), lambda: made, plugin=plugin, version="1.2")


def registry_of(*names: str) -> ToolRegistry:
    registry = ToolRegistry()
    for name in names:
        registry.register(make(name))
    return registry


def test_definitions_are_ordered_and_the_same_until_the_registry_changes() -> None:
    registry = registry_of("write", "exec")
    for name in ("mcp_b_x", "a_y"):
        served = make(name)
        served.source = "MCP server 'time'"
        registry.register(served)

    first = registry.get_definitions()

    assert [definition.name for definition in first] == ["exec", "write", "a_y", "mcp_b_x"]
    assert registry.get_definitions() is first
    assert registry.names() == ["exec", "write", "a_y", "mcp_b_x"]
    assert registry.unregister("exec")
    assert not registry.unregister("exec")
    assert registry.names() == ["write", "a_y", "mcp_b_x"]


def test_a_registry_is_a_collection_of_its_tools() -> None:
    registry = registry_of("b", "a")

    assert len(registry) == 2
    assert "a" in registry
    assert registry.has("a")
    assert "c" not in registry
    assert [found.definition.name for found in registry] == ["a", "b"]
    assert registry.get("c") is None


def test_a_name_taken_twice_names_both_owners() -> None:
    registry = ToolRegistry()
    registry.register(entry("read", "files"))

    with pytest.raises(NameConflict, match="claimed by 'files' and 'other'"):
        registry.register(make("read"), plugin="other")
    found = registry.get("read")
    assert found is not None
    assert found.origin == "files@1.2"


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a.b", "a\n"])
def test_a_name_that_services_refuse_is_refused_here(name: str) -> None:
    definition = ToolDefinition(name=name, description="", parameters={"type": "object"})

    with pytest.raises(PluginRejected, match="is not usable"):
        ToolRegistry().register(
            RegisteredTool(DeclaredTool(definition), lambda: make("x"), plugin="p")
        )


def test_replacing_a_plugins_tools_is_one_change() -> None:
    registry = registry_of("own")
    registry.replace("mcp", [entry("a", "mcp"), entry("b", "mcp")])
    registry.replace("mcp", [entry("b", "mcp"), entry("c", "mcp")])
    assert registry.names() == ["b", "c", "own"]

    with pytest.raises(NameConflict):
        registry.replace("mcp", [entry("d", "mcp"), entry("own", "mcp")])
    with pytest.raises(PluginRejected):
        registry.replace("mcp", [entry("e", "mcp"), entry("not a name", "mcp")])

    assert registry.names() == ["b", "c", "own"]


def test_a_narrowed_registry_has_only_the_wanted_tools_that_exist() -> None:
    registry = registry_of("a", "b", "c")

    narrowed = registry.narrowed(["c", "a", "z"])

    assert narrowed.names() == ["a", "c"]
    assert registry.names() == ["a", "b", "c"]


def test_the_same_names_give_the_same_registry_until_a_tool_changes() -> None:
    """What is derived from the definitions, such as their size, was derived in each turn."""
    registry = registry_of("a", "b", "c")
    first = registry.narrowed(["a", "b"])

    assert registry.narrowed({"b", "a"}) is first
    assert registry.narrowed(["a"]) is not first
    assert registry.unregister("b")
    assert registry.narrowed(["a", "b"]).names() == ["a"]


def test_a_call_is_cast_and_validated() -> None:
    call = registry_of("act").prepare_call("act", {"count": "3"})

    assert call.tool is not None
    assert call.params == {"count": 3}
    assert call.error is None


def test_arguments_that_do_not_fit_are_told_with_one_hint() -> None:
    call = registry_of("act").prepare_call("act", {"count": "many"})

    assert call.error is not None
    assert "invalid arguments for act: count should be integer, found string" in call.error
    assert call.error.count(RETRY_HINT) == 1
    assert with_hint(call.error) == call.error


def test_arguments_that_are_no_object_are_told_as_such() -> None:
    call = registry_of("act").prepare_call("act", "now")

    assert call.params == {}
    assert call.error is not None
    assert "arguments must be an object, found string" in call.error


def test_an_unknown_tool_is_answered_with_near_names_and_all_names() -> None:
    registry = ToolRegistry(lambda name: f"Plugin x would bring {name}.")
    assert "Available tools: none." in str(registry.prepare_call("raed", {}).error)
    registry.register(make("read"))

    call = registry.prepare_call("raed", {})

    assert call.tool is None
    assert call.error == with_hint(
        "Error: there is no tool 'raed'. Did you mean read? Plugin x would bring raed. "
        "Available tools: read."
    )


@pytest.mark.anyio
async def test_code_is_loaded_once_at_the_first_call() -> None:
    loaded: list[Tool] = []

    def load() -> Tool:
        loaded.append(make("late"))
        return loaded[-1]

    definition = ToolDefinition(name="late", description="", parameters={"type": "object"})
    late = RegisteredTool(DeclaredTool(definition), load, plugin="p")
    registry = ToolRegistry()
    registry.register(late)
    registry.prepare_call("late", {})
    assert loaded == []

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(late.tool()) for _ in range(5)]

    assert len(loaded) == 1
    assert {call.result() for call in calls} == set(loaded)
    assert late.origin == "p"


def test_what_is_known_of_a_tool_before_its_code_decides_on_repeating_and_compacting() -> None:
    registry = ToolRegistry()
    registry.register(make("look", read_only=True))
    registry.register(make("change"))

    @tool(idempotent=True, compactable=True)
    def put() -> None:
        """Put."""

    registry.register(put)

    idempotent = [each.definition.name for each in registry if each.declared.idempotent]
    assert idempotent == ["look", "put"]
    assert registry.compactable_names() == {"put"}
