"""Entry point: the provider ``offline``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext, ProviderSpec


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    """Contribute the provider that is used when nothing else is configured."""
    from nanobot_core import ProviderSpec

    yield ProviderSpec(
        name="offline",
        factory="nanobot_offline.provider:create_provider",
        summary="a stand-in without a model: carries out tool calls that you write yourself",
        settings="nanobot_offline.settings:OfflineSettings",
        keywords=("offline",),
        needs_key=False,
        demo=True,
    )
