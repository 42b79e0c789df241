"""Adds a plugin in a single file, which stays where it is and is not installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core.config.editing import add_to_list, remove_from_list
from nanobot_core.contracts.operation import PlannedPlugin
from nanobot_core.errors import InstallError
from nanobot_core.install.place import UNCHANGED, Place, Step, undone_on_failure
from nanobot_core.install.trial import try_start
from nanobot_core.plugins.consent import agree
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.index import local_plugins

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig


def add_file(
    place: Place,
    file: Path,
    loaded: LoadedConfig,
    *,
    step: Step,
    agree_to: Callable[[PlannedPlugin], bool],
) -> list[str]:
    """Name a file under ``plugins.local``, after a child process has imported and started it.

    Args:
        place: where that is recorded.
        file: the file, absolute.
        loaded: the configuration.
        step: reports progress.
        agree_to: asks the owner about what it reaches.

    Returns:
        What the owner has to do before it can run, each in a sentence.

    Raises:
        InstallError: it cannot be a plugin or fails; everything is as before.
    """
    (plugin,) = local_plugins([str(file)], place.home)
    what = f"plugin '{plugin.id}'"
    if plugin.problem:
        raise InstallError(what, plugin.problem, "rename the file")
    others = local_plugins(loaded.settings.plugins.local, place.home)
    if any(
        each.id == plugin.id and each.file != plugin.file for each in (*others, *place.plugins())
    ):
        raise InstallError(what, "another plugin has this id", "rename the file")
    with undone_on_failure(place):
        place.journal.begin(
            f"add {file}",
            place.environment.interpreter,
            replaced=(),
            created=(place.home / "plugins" / plugin.id,),
            files=place.own_files,
        )
        step("examining")
        manifest = examine_plugin(plugin.id, plugin.file)
        planned = PlannedPlugin(
            id=plugin.id,
            label=str(file),
            reaches=manifest.capabilities,
            news=(),
            is_new=all(each.file != plugin.file for each in others),
            is_asked_for=True,
        )
        if not agree_to(planned):
            raise InstallError("not added", "you did not agree", UNCHANGED)
        add_to_list(place.config, "plugins.local", str(file))
        remove_from_list(place.config, "plugins.disabled", lambda each: each == plugin.id)
        agree(place.home, [replace(plugin, manifest=manifest)])
        step("starting")
        return try_start([plugin.id], place.given_config, place.profile)
