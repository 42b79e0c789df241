"""An agent for one isolated plugin, in the process of that plugin."""

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
    """Return an agent with one plugin, and the settings, folders and variables of the host.

    It is not started: use ``plugins.activate``, ``plugins.load_tools`` and ``plugins.stop``. It
    reads no configuration file and no other variables, and logs to standard error.

    Args:
        setup: `IsolatedPlugin.setup` of the host.

    Raises:
        ConfigError: this version cannot use the core's settings.
    """
    tree, variables = setup["tree"], setup["environment"]
    home, settings = Path(setup["home"]), Settings.model_validate(tree)
    secrets = maskable({*find_secrets(tree), *environment_secrets(variables)})
    path = Path(setup["config"]) if setup["config"] else None
    loaded = LoadedConfig(settings, tree, {}, path, home, secrets)
    configure_logging(loaded, level="INFO")
    # An index is valid for one environment only.
    cache = home / "cache" / "isolated" / setup["plugin"]
    return Nanobot(loaded, catalogue=Catalogue.load(cache, settings.plugins), environ=variables)
