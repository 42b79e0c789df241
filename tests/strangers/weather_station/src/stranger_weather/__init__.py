"""A weather station: the plugin of somebody who only knows the public names of nanobot-core."""

__all__: list[str] = []
