"""One active plugin: its code, its context, what it implements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.plugin import Health
from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import HookError, PluginLoadFailed, PluginRejected
from nanobot_core.hooks.generation import CompiledPlugin, Registrant
from nanobot_core.hooks.implementation import HookRuntime, invoke_apart
from nanobot_core.plugins.bounded import call_within
from nanobot_core.plugins.context import HostContext
from nanobot_core.plugins.examine import collect, resolve_lazy_tool
from nanobot_core.plugins.manifest import KINDS, Manifest, declared_traits, tool_definition
from nanobot_core.plugins.names import ToolNames
from nanobot_core.tools.registry import RegisteredTool, ToolTraits

if TYPE_CHECKING:
    from nanobot_core.contracts.plugin import StopCause

CONTRIBUTION_LIMIT_S = 30.0


@dataclass(slots=True)
class ActivePlugin:
    """A plugin whose code is imported.

    Attributes:
        registrant: the plugin as the hooks see it.
        manifest: what it may contribute.
        context: what the host lent to it.
        runtime: runs its own hooks in tasks that the application owns.
        compiled: what it implements, by hook.
        published: tools that it published while running.
    """

    registrant: Registrant
    manifest: Manifest
    context: HostContext
    runtime: HookRuntime
    compiled: CompiledPlugin
    published: tuple[Tool | LazyTool, ...] = field(default=())
    _started: bool = field(default=False, init=False)

    @property
    def id(self) -> str:
        """The plugin's id."""
        return self.registrant.id

    async def start(self) -> None:
        """Call the plugin's ``start``, if it has one. Once.

        Raises:
            PluginLoadFailed: it failed or overran its time; what was lent is taken back.
        """
        if self._started:
            msg = f"plugin '{self.id}' was started twice"
            raise RuntimeError(msg)
        self._started = True
        try:
            await self._call_own("start", self.context)
        except HookError as error:
            await self.context.lent.take_back()
            raise PluginLoadFailed(
                self.id, f"its start failed: {error.reason}", "mend that, then start nanobot again"
            ) from error
        except asyncio.CancelledError:
            await self.context.lent.take_back()
            raise

    async def check_health(self) -> Health:
        """Return how the plugin says it is; one that does not say is well."""
        try:
            found = await self._call_own("check_health", self.context)
        except HookError as error:
            return Health(ok=False, message=f"its check_health failed: {error.reason}")
        if found is None:
            return Health(ok=True)
        if not isinstance(found, Health):
            return Health(ok=False, message=f"its check_health gave {type(found).__name__}")
        return found

    async def stop(self, reason: StopCause) -> None:
        """Call the plugin's ``stop`` and take back what was lent, whether or not it worked."""
        try:
            await self._call_own("stop", self.context, reason)
        except HookError as error:
            self.runtime.report(error)
        finally:
            await self.context.lent.take_back()

    async def _call_own(self, hook: str, *args: Any) -> Any:
        """Call one hook of the plugin's own life, in a task that can be left behind."""
        if hook not in self.compiled:
            return None
        [implementation] = self.compiled[hook]
        return await invoke_apart(implementation, self.runtime.spawn, *args)

    async def contribute(self, kind: str) -> list[Any]:
        """Return what the plugin contributes of one kind, called in a thread.

        Raises:
            PluginLoadFailed: the hook failed or did not end.
        """
        if KINDS[kind] not in self.compiled:
            return []
        [implementation] = self.compiled[KINDS[kind]]
        return await asyncio.to_thread(
            call_within,
            CONTRIBUTION_LIMIT_S,
            self.id,
            KINDS[kind],
            lambda: collect(self.id, KINDS[kind], implementation.function, self.context),
        )

    def registered_tools(
        self, contributed: Sequence[Any], names: ToolNames
    ) -> list[RegisteredTool]:
        """Return tools ready for the registry, under their public names.

        Raises:
            PluginRejected: one is malformed or was not declared in the manifest.
        """
        return [
            self._registered(tool, names.public.get((self.id, self._tool_name(tool))))
            for tool in contributed
        ]

    def _tool_name(self, tool: Any) -> str:
        if not isinstance(tool, Tool | LazyTool):
            raise PluginRejected(
                self.id, f"contribute_tools gave {type(tool).__name__}, give Tool or LazyTool"
            )
        return tool.name

    def _registered(self, tool: Tool | LazyTool, public: str | None) -> RegisteredTool:
        declared = {item.name: item for item in self.manifest.of_kind("tools")}
        if tool.name not in declared and not self._matches_pattern(tool.name):
            raise PluginRejected(
                self.id,
                f"tool '{tool.name}' is not declared in its manifest",
                "run nanobot plugins build",
            )
        if isinstance(tool, LazyTool):
            if tool.name not in declared:
                raise PluginRejected(
                    self.id,
                    f"tool '{tool.name}' is lazy and known by a pattern only",
                    "publish the tool itself",
                )
            definition = tool_definition(declared[tool.name])
            traits = declared_traits(declared[tool.name])
            lazy = tool

            def load() -> Tool:
                return call_within(
                    CONTRIBUTION_LIMIT_S,
                    self.id,
                    f"loading tool '{lazy.name}'",
                    lambda: resolve_lazy_tool(self.id, lazy, self.context),
                )

        else:
            definition, traits, ready = tool.definition, ToolTraits.of(tool), tool

            def load() -> Tool:
                return ready

        return RegisteredTool(
            replace(definition, name=public or tool.name),
            load,
            plugin=self.id,
            version=self.registrant.version,
            traits=traits,
        )

    def _matches_pattern(self, name: str) -> bool:
        from fnmatch import fnmatchcase

        return any(fnmatchcase(name, pattern) for pattern in self.manifest.facts.tool_names)
