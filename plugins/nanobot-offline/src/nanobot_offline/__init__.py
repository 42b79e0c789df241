"""nanobot-offline: a provider that needs no key, no network and no model."""

__all__: list[str] = []
