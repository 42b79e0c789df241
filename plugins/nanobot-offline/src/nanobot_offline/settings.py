"""Settings of the offline provider."""

from __future__ import annotations

from nanobot_core import ProviderSettings


class OfflineSettings(ProviderSettings):
    """The section ``providers.offline``.

    Attributes:
        script: YAML file of a conversation to replay, absolute, below ``~`` or relative to the
            workspace; ``None`` carries out what the user writes.
    """

    script: str | None = None
