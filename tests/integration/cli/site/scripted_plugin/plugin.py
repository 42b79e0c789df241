"""Hook implementations."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot_core import Check, LazyTool, PluginContext, ProviderSpec, Tool, on


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(
        name="scripted",
        factory="scripted_plugin.provider:create",
        summary="answers as the message says",
        api_key_env=("SCRIPTED_API_KEY",),
        keywords=("scripted",),
    )


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool | LazyTool]:
    from scripted_plugin.provider import ping

    yield ping


@on.contribute_checks
def contribute_checks() -> Iterable[Check]:
    yield Check(name="patience", run="scripted_plugin.checks:wait_for_ever")
    yield Check(name="nerves", run="scripted_plugin.checks:fail")
    yield Check(name="health", run="scripted_plugin.checks:pass_well")
