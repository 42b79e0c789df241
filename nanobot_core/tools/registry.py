"""ToolRegistry: the tools, their origins, and the preparation of calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator

from nanobot_core.contracts.tool import DeclaredTool, Tool
from nanobot_core.errors import NameConflict, PluginRejected
from nanobot_core.events import ToolDefinition
from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass
from nanobot_core.text import nearest
from nanobot_core.tools.casting import cast_params
from nanobot_core.tools.model import model_findings
from nanobot_core.tools.validation import ParameterSchema

RETRY_HINT = "\n\n[Analyse the error above and try a different approach.]"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEPT_SELECTIONS = 8
"""Selections of one registry that are kept; senders with the same rights share one."""


def with_hint(error: str) -> str:
    """Return an error text for the model, ending with the hint to try another way, once."""
    return error if error.endswith(RETRY_HINT) else error + RETRY_HINT


class RegisteredTool:
    """A tool in a registry. Its code is loaded when it is first called.

    Attributes:
        declared: what is known without its code.
        definition: what the model sees, with the name in this registry.
        own_name: its name in the plugin, which may differ from the name in this registry.
        plugin: id of its plugin.
        version: version of that plugin; empty if a program registered the tool.
        source: see `Tool.source`.
        schema: the compiled parameters.
    """

    def __init__(
        self,
        declared: DeclaredTool,
        load: Callable[[], Tool],
        *,
        plugin: str,
        version: str = "",
        own_name: str = "",
        source: str = "",
    ) -> None:
        self.declared: DeclaredTool = declared
        self.definition: ToolDefinition = declared.definition
        self.source = source
        self.own_name: str = own_name or declared.definition.name
        self.plugin = plugin
        self.version = version
        self.schema: ParameterSchema = ParameterSchema(declared.definition.parameters)
        self._load = load
        self._tool: Tool | None = None
        self._loading = asyncio.Lock()

    @property
    def origin(self) -> str:
        """``plugin@version``."""
        return f"{self.plugin}@{self.version}" if self.version else self.plugin

    async def tool(self) -> Tool:
        """Return the tool, loaded in a thread at the first call.

        Raises:
            PluginError: its code cannot be loaded.
        """
        if self._tool is None:
            async with self._loading:
                if self._tool is None:
                    self._tool = await asyncio.to_thread(self._prepare)
        return self._tool

    def _prepare(self) -> Tool:
        tool = self._load()
        if tool.parameters_model is None:
            # The first check imports the validator and compiles the schema: tens of milliseconds.
            self.schema.findings({})
        return tool

    def findings(self, arguments: object) -> list[str]:
        """Return the problems of `arguments`, each with its path."""
        model = self._tool.parameters_model if self._tool else None
        if model is not None and isinstance(arguments, dict):
            return model_findings(model, arguments)
        return self.schema.findings(arguments)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call after its tool was looked up and its arguments were cast and validated.

    Attributes:
        tool: the tool, or ``None`` if the name is unknown.
        params: the arguments, cast as far as they could be.
        error: text for the model when the call cannot run, else ``None``.
    """

    tool: RegisteredTool | None
    params: JsonObject
    error: str | None


class ToolRegistry:
    """Tools by name. Changes take effect with the next `get_definitions`.

    Args:
        describe_missing: returns a sentence about an unknown name, such as which plugin has a tool
            of that name, or an empty string.
    """

    def __init__(self, describe_missing: Callable[[str], str] = lambda _name: "") -> None:
        self._tools: dict[str, RegisteredTool] = {}
        self._definitions: tuple[ToolDefinition, ...] | None = None
        self._selections: dict[frozenset[str], ToolRegistry] = {}
        self._describe_missing = describe_missing

    def register(
        self, tool: Tool | RegisteredTool, *, plugin: str = "application", version: str = ""
    ) -> None:
        """Add a tool.

        Args:
            tool: the tool, or one whose code is loaded later.
            plugin: id of its plugin; ignored for a `RegisteredTool`, which has one.
            version: version of that plugin.

        Raises:
            NameConflict: the name is taken; both owners are named.
            PluginRejected: the name is not valid for a tool.
        """
        entry = tool if isinstance(tool, RegisteredTool) else _loaded(tool, plugin, version)
        name = entry.definition.name
        if not _NAME.fullmatch(name):
            raise PluginRejected(
                entry.plugin,
                f"tool name '{name}' is not usable",
                "use 1 to 64 letters, digits, '_' and '-'",
            )
        if name in self._tools:
            raise NameConflict("tool", name, (self._tools[name].plugin, entry.plugin))
        self._tools[name] = entry
        self._definitions, self._selections = None, {}

    def unregister(self, name: str) -> bool:
        """Remove a tool; False if the name is unknown."""
        self._definitions, self._selections = None, {}
        return self._tools.pop(name, None) is not None

    def replace(self, plugin: str, tools: Iterable[RegisteredTool]) -> None:
        """Replace all tools of `plugin` by `tools`, as one change.

        Raises:
            NameConflict: another plugin has one of the names; nothing is changed.
            PluginRejected: a name is not valid for a tool; nothing is changed.
        """
        candidate = ToolRegistry()
        candidate._tools = {
            name: entry for name, entry in self._tools.items() if entry.plugin != plugin
        }
        for entry in tools:
            candidate.register(entry)
        self._tools = candidate._tools
        self._definitions, self._selections = None, {}

    def narrowed(self, names: Iterable[str]) -> ToolRegistry:
        """Return a registry with only those of `names` that exist here; do not change it.

        The same names give the same registry until this one changes, so that what is derived from
        its definitions, such as their size, is derived once.
        """
        wanted = frozenset(names)
        if wanted not in self._selections:
            result = ToolRegistry(self._describe_missing)
            result._tools = {name: entry for name, entry in self._tools.items() if name in wanted}
            if len(self._selections) >= _KEPT_SELECTIONS:
                del self._selections[next(iter(self._selections))]
            self._selections[wanted] = result
        return self._selections[wanted]

    def get(self, name: str) -> RegisteredTool | None:
        """Return the tool of that name, or ``None``."""
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        """Whether a tool has that name."""
        return name in self._tools

    def names(self) -> list[str]:
        """Return all names, in the order of `get_definitions`."""
        return [definition.name for definition in self.get_definitions()]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[RegisteredTool]:
        return iter([self._tools[name] for name in self.names()])

    def get_definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the tools' definitions by name, those with a `source` after all others.

        Equal from turn to turn until the registry changes, since prompt caches depend on it.
        """
        if self._definitions is None:
            entries = sorted(self._tools, key=lambda name: (bool(self._tools[name].source), name))
            self._definitions = tuple(self._tools[name].definition for name in entries)
        return self._definitions

    def compactable_names(self) -> frozenset[str]:
        """Return the tools whose old results may be left out of requests."""
        return frozenset(n for n, entry in self._tools.items() if entry.declared.compactable)

    def prepare_call(self, name: str, params: object) -> PreparedCall:
        """Find the tool, cast the arguments and validate them. Runs and imports nothing.

        Args:
            name: as the model wrote it.
            params: the arguments, an object if the model did well.
        """
        entry = self._tools.get(name)
        if entry is None:
            return PreparedCall(None, {}, with_hint(self._unknown(name)))
        if not isinstance(params, dict):
            findings = entry.findings(params)
            return PreparedCall(entry, {}, with_hint(f"Error: {name}: {'; '.join(findings)}"))
        cast = cast_params(entry.definition.parameters, params)
        findings = entry.findings(cast)
        if findings:
            problem = f"Error: invalid arguments for {name}: {'; '.join(findings)}"
            return PreparedCall(entry, cast, with_hint(problem))
        return PreparedCall(entry, cast, None)

    def _unknown(self, name: str) -> str:
        names = self.names()
        close = nearest(name, names)
        parts = [f"Error: there is no tool '{name}'."]
        if close:
            parts.append(f"Did you mean {' or '.join(close)}?")
        if missing := self._describe_missing(name):
            parts.append(missing)
        parts.append(f"Available tools: {', '.join(names) or 'none'}.")
        return " ".join(parts)


def _loaded(tool: Tool, plugin: str, version: str) -> RegisteredTool:
    declared, source = DeclaredTool.of(tool), tool.source
    return RegisteredTool(declared, lambda: tool, plugin=plugin, version=version, source=source)
