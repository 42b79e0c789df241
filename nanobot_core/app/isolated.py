"""The other side of an isolated plugin: an agent for it alone, in its own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nanobot_core.app.application import Nanobot
from nanobot_core.app.logging import configure_logging
from nanobot_core.config.loading import LoadedConfig
from nanobot_core.config.models import Settings
from nanobot_core.config.secrets import environment_secrets, find_secrets, maskable
from nanobot_core.plugins.catalogue import Catalogue


def isolated_agent(setup: Mapping[str, Any]) -> Nanobot:
    """Return an agent that has one plugin, with the settings, folders and variables of its owner's.

    It is not entered: ``plugins.activate``, ``plugins.load_tools`` and ``plugins.stop`` are of use.
    No configuration file and no other variable is read, and log records go to standard error.

    Args:
        setup: what the host gave as `IsolatedPlugin.setup`.

    Raises:
        ConfigError: the core's part of it does not fit this version.
    """
    tree, variables = setup["tree"], setup["environment"]
    home, settings = Path(setup["home"]), Settings.model_validate(tree)
    secrets = maskable({*find_secrets(tree), *environment_secrets(variables)})
    path = Path(setup["config"]) if setup["config"] else None
    loaded = LoadedConfig(settings, tree, {}, path, home, secrets)
    configure_logging(loaded, level="INFO")
    # The index of one environment would be void for the other each time.
    cache = home / "cache" / "isolated" / setup["plugin"]
    return Nanobot(loaded, catalogue=Catalogue.load(cache, settings.plugins), environ=variables)
