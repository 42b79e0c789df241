"""Entry point: one provider for each row of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext, ProviderSpec


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    """Return the rows of the table."""
    from nanobot_litellm.vendors import VENDORS

    return VENDORS
