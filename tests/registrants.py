"""What a plugin implements, looked at without a host."""

from __future__ import annotations

from nanobot_core.hooks.compilation import HookStats, Registrant, compile_plugin


def check_registrant(registrant: Registrant) -> tuple[str, ...]:
    """Return the names of the hooks that a plugin implements; raises as `compile_plugin`."""
    return tuple(sorted(compile_plugin(registrant, HookStats(now_s=lambda: 0.0))))
