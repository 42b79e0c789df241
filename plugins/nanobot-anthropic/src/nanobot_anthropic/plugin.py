"""Entry point: one provider, `anthropic`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ProviderSpec, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext

SPEC = ProviderSpec(
    name="anthropic",
    factory="nanobot_anthropic.provider:build_provider",
    summary="Anthropic, Claude models",
    keywords=("anthropic", "claude"),
    api_key_env=("ANTHROPIC_API_KEY",),
    default_base="https://api.anthropic.com",
    strip_prefix=True,
    json_schema=True,
    models="nanobot_anthropic:models.json",
    prompt_cache=True,
)


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    """Return the row of the provider."""
    return (SPEC,)
