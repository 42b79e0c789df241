"""Entry point: one provider for each vendor of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import PluginFacts, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext, ProviderSpec


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Say which files are the tokens of sign-ins."""
    return PluginFacts(secret_files=("tokens/*",))


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    """Give the vendors of the table."""
    from nanobot_openai.vendors import VENDORS

    return VENDORS
