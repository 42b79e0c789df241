"""Removes plugins, however broken they are; none of their code runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.metadata import Distribution
from typing import TYPE_CHECKING

from nanobot_core.config.editing import add_to_list, remove_from_list
from nanobot_core.errors import InstallError
from nanobot_core.install.change import drop_requirement, required_name
from nanobot_core.install.installer import Installer
from nanobot_core.install.place import Place, Step, undone_on_failure
from nanobot_core.install.plan import applicable, installed_distributions, needed_by
from nanobot_core.install.publisher import forget_publishers
from nanobot_core.plugins.consent import forget
from nanobot_core.plugins.index import ENTRY_POINT_GROUP, local_plugins
from nanobot_core.plugins.metadata import CORE, normalise
from nanobot_core.record import dataclass
from nanobot_core.text import nearest

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What removing a plugin removes.

    Attributes:
        ids: the plugins.
        names: their distribution.
        unneeded: distributions that nothing else requires.
        file: path of a single-file plugin, which is kept on disk.
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]
    unneeded: tuple[str, ...] = ()
    file: str = ""


def plan_removal(plugin_id: str, place: Place, loaded: LoadedConfig) -> Removal:
    """Return what removing a plugin removes; nothing is imported, however broken it is.

    Args:
        plugin_id: its id, or the name of its distribution.
        place: where it is installed.
        loaded: the configuration.

    Raises:
        InstallError: it is not installed, or something that stays requires it.
    """
    settings = loaded.settings.plugins
    local = {each.id: each.file or "" for each in local_plugins(settings.local, loaded.home)}
    if plugin_id in local:
        return Removal(ids=(plugin_id,), names=(), file=local[plugin_id])
    here = place.plugins()
    names = {each.distribution for each in here if each.id == plugin_id}
    installed = installed_distributions()
    by_name = normalise(plugin_id)
    is_named = not names and by_name in installed and by_name != CORE
    in_config = by_name in map(required_name, settings.install)
    if is_named and (in_config or _may_have_plugins(installed[by_name])):
        names = {by_name}
    if not names:
        close = nearest(plugin_id, [each.id for each in here], limit=1)
        hint = f"did you mean '{close[0]}'?" if close else "see nanobot plugins list"
        raise InstallError(f"plugin '{plugin_id}'", "it is not installed", hint)
    ids = tuple(each.id for each in here if each.distribution in names)
    if needed := [each for each in ids if each in settings.required]:
        reason = f"plugin '{needed[0]}' is named under plugins.required"
        raise InstallError(f"cannot remove {plugin_id}", reason, "remove it there first")
    _refuse_needed(names, {CORE, *names})
    return Removal(ids=ids, names=tuple(sorted(names)), unneeded=tuple(_unneeded(names)))


def _may_have_plugins(distribution: Distribution) -> bool:
    """Whether a distribution has plugins, or entry points that cannot be read."""
    try:
        return any(entry.group == ENTRY_POINT_GROUP for entry in distribution.entry_points)
    except ValueError:
        return True


def _requirers(name: str) -> Iterator[str]:
    for owner, distribution in installed_distributions().items():
        lines = tuple(distribution.requires or ())
        if name in {normalise(each.name) for each in applicable(lines)}:
            yield owner


def _refuse_needed(names: Collection[str], apart: Collection[str]) -> None:
    for name in sorted(names):
        for owner in _requirers(name):
            if owner not in apart:
                remedy = f"remove {owner} first"
                raise InstallError(f"cannot remove {name}", f"{owner} requires it", remedy)


def _is_asked_for(distribution: Distribution) -> bool:
    """Whether its installer recorded that its user named it; uv records that of everything."""
    is_recorded = distribution.read_text("REQUESTED") is not None
    return is_recorded and (distribution.read_text("INSTALLER") or "").strip() != "uv"


def _unneeded(names: Collection[str]) -> list[str]:
    """Return what only the removed distributions require, and no one has asked for."""
    installed = installed_distributions()
    concerned = needed_by(installed, names)
    asked = {name for name in concerned - set(names) if _is_asked_for(installed[name])}
    others = installed.keys() - concerned
    return sorted(concerned - set(names) - needed_by(installed, {*others, *asked, CORE}))


def carry_out_removal(
    place: Place,
    removal: Removal,
    installer: Installer,
    *,
    names: Sequence[str],
    step: Step,
    withdraw: Callable[[], None] | None,
) -> None:
    """Remove what was planned, and undo all of it if anything fails.

    Args:
        place: where.
        removal: the plugins.
        installer: removes.
        names: the distributions, dependencies included if the owner wants that.
        step: reports progress.
        withdraw: makes a running gateway stop what is disabled; ``None`` if none runs.

    Raises:
        InstallError: it failed; everything is as before.
    """
    installed = installed_distributions()
    with undone_on_failure(place):
        place.journal.begin(
            f"remove {', '.join(names or removal.ids)}",
            place.environment.interpreter,
            replaced=[installed[name] for name in names],
            created=(),
            files=place.own_files,
        )
        if withdraw is not None:
            step("stopping")
            for plugin_id in removal.ids:
                add_to_list(place.config, "plugins.disabled", plugin_id, out_of="plugins.enabled")
            withdraw()
        step("removing")
        if names:
            installer.uninstall(names)
        for plugin_id in removal.ids:
            _forget_in_config(place, plugin_id, removal.file)
        for name in removal.names:
            drop_requirement(place.config, name)
        forget(place.home, removal.ids)
        forget_publishers(place.home, names)


def _forget_in_config(place: Place, plugin_id: str, file: str) -> None:
    if not place.config.exists():
        return
    for key in ("plugins.enabled", "plugins.disabled"):
        remove_from_list(place.config, key, lambda each: each == plugin_id)
    if file:
        remove_from_list(
            place.config,
            "plugins.local",
            lambda each: local_plugins([each], place.home)[0].file == file,
        )
