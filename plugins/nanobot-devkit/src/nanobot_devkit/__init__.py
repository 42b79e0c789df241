"""For plugin authors: scaffold, manifest, check."""

__all__: list[str] = []
