"""Whether the code of a plugin does what its manifest says, and no more."""

from __future__ import annotations

from nanobot_core.errors import PluginRejected
from nanobot_core.hooks.caller import GATES, declared_hooks
from nanobot_core.hooks.compilation import CompiledPlugin
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.examine import critical_hooks
from nanobot_core.plugins.manifest import KINDS, Manifest


class UndeclaredHook(PluginRejected):
    """Code that does more than its manifest says.

    Attributes:
        judges: the hooks of the code that must not be left out.
    """

    def __init__(self, plugin: str, hook: str, judges: frozenset[str]) -> None:
        super().__init__(
            plugin,
            f"it implements {hook}, which its manifest does not declare",
            "run nanobot plugins build",
        )
        self.judges: frozenset[str] = judges


def judging_hooks(compiled: CompiledPlugin) -> frozenset[str]:
    """Return the hooks of a plugin's code that must not be left out."""
    return GATES & compiled.keys() | frozenset(critical_hooks(compiled))


def check_declared(plugin_id: str, compiled: CompiledPlugin, manifest: Manifest) -> None:
    """Refuse code that does more than its manifest says."""
    points = declared_hooks()
    kinds = {hook: kind for kind, hook in KINDS.items()}
    for hook in compiled:
        declared = hook in manifest.hooks or (
            hook in points and points[hook].kind is Kind.CONTRIBUTE
        )
        if hook in kinds and not manifest.of_kind(kinds[hook]) and not manifest.facts.tool_names:
            declared = False
        if not declared:
            raise UndeclaredHook(plugin_id, f"'{hook}'", judging_hooks(compiled))
    for hook in critical_hooks(compiled):
        if hook not in manifest.critical:
            raise UndeclaredHook(plugin_id, f"'{hook}' as critical", judging_hooks(compiled))
