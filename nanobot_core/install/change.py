"""Carries out an installation, and undoes all of it if anything fails."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from nanobot_core.config.editing import add_to_list, remove_from_list
from nanobot_core.contracts.operation import PlannedPlugin
from nanobot_core.errors import InstallError
from nanobot_core.install.candidate import Candidate, installed_hashes
from nanobot_core.install.installer import Installer, Pin
from nanobot_core.install.place import UNCHANGED, Place, Step, undone_on_failure
from nanobot_core.install.plan import Plan, installed_distributions
from nanobot_core.install.publisher import remember_publishers
from nanobot_core.install.trial import try_start
from nanobot_core.plugins.consent import Consents, agree
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.metadata import normalise

Agree = Callable[[Sequence[PlannedPlugin]], bool]
"""Asks the owner about plugins of which only their code says what they reach."""


def carry_out(
    place: Place,
    plan: Plan,
    installer: Installer,
    *,
    step: Step,
    agree_to: Agree,
    record: Callable[[], None],
) -> list[str]:
    """Install what was planned, and undo all of it if anything fails.

    Args:
        place: where.
        plan: what.
        installer: the one that has downloaded it.
        step: reports progress.
        agree_to: asks about plugins that were not described before.
        record: writes what the owner asked for into the configuration.

    Returns:
        What the owner has to do before a plugin can run, each in a sentence.

    Raises:
        InstallError: it failed; environment, configuration and consent are as before.
    """
    installed = installed_distributions()
    ids = [plugin.id for plugin in plan.plugins if plugin.is_asked_for]
    data = [place.home / "plugins" / each.id for each in plan.plugins if each.is_new]
    changed = [installed[each.name] for each in plan.candidates if each.name in installed]
    paths = [path for each in plan.candidates for path in each.paths(plan.environment.interpreter)]
    with undone_on_failure(place):
        place.journal.begin(
            f"install {', '.join(sorted(map(str, plan.pins)))}",
            plan.environment.interpreter,
            replaced=changed,
            created=(*paths, *data),
            files=place.own_files,
        )
        step("installing")
        if plan.replaced:
            installer.uninstall(plan.replaced)
        installer.install(plan.pins, plan.named)
        if missing := _not_installed(plan):  # a lock has what nothing that is named requires
            installer.install(missing, ())
        _verify(plan.candidates)
        step("examining")
        examined = _examine(place, plan, ids)
        consents = Consents.load(place.home)
        unknown = [
            replace(
                each,
                reaches=examined[each.id].gives.capabilities,
                news=consents.news_of(examined[each.id]),
            )
            for each in plan.plugins
            if each.reaches is None and each.id in examined
        ]
        if unknown and not agree_to(unknown):
            raise InstallError("not installed", "you did not agree to what it reaches")
        record()
        agree(place.home, examined.values())
        remember_publishers(place.home, plan.publishers)
        step("starting")
        return try_start(ids, place.given_config, place.profile) if ids else []


def _not_installed(plan: Plan) -> list[Pin]:
    importlib.invalidate_caches()
    installed = installed_distributions()
    return [
        pin
        for pin in plan.pins
        if pin.name not in installed or Version(installed[pin.name].version) != Version(pin.version)
    ]


def _verify(candidates: Sequence[Candidate]) -> None:
    """Refuse if what is installed is not what was checked."""
    installed = installed_distributions()
    for candidate in candidates:
        found = installed.get(candidate.name)
        hashes = installed_hashes(found) if found is not None else {}
        differing = [path for path, value in hashes.items() if candidate.hashes.get(path) != value]
        if not hashes or differing:
            reason = (
                f"'{differing[0]}' is not the file that was checked" if differing else "missing"
            )
            raise InstallError(candidate.label, reason, UNCHANGED)


def _examine(place: Place, plan: Plan, ids: Sequence[str]) -> dict[str, InstalledPlugin]:
    """Return the new plugins as their code describes them.

    Raises:
        PluginError: the code of one does not import, or breaks a rule.
        InstallError: it reaches more than its manifest says.
    """
    here = {plugin.id: plugin for plugin in place.plugins()}
    declared = {each.id: each for candidate in plan.candidates for each in candidate.plugins}
    found = {}
    for plugin_id in ids:
        plugin = here.get(plugin_id)
        if plugin is None or plugin.problem:
            reason = plugin.problem if plugin else "it is not found after its installation"
            raise InstallError(f"plugin '{plugin_id}'", reason, UNCHANGED)
        derived = examine_plugin(plugin_id)
        shown = declared[plugin_id].manifest
        more = derived.reaches.keys() - shown.reaches.keys() if shown else set()
        if more:
            words = ", ".join(derived.reaches[key] for key in sorted(more))
            reason = f"its code reaches more than its manifest says: {words}"
            raise InstallError(f"plugin '{plugin_id}'", reason, f"ask its author; {UNCHANGED}")
        found[plugin_id] = replace(plugin, manifest=shown or derived)
    return found


def enable(config: Path, plugin_ids: Sequence[str], requirements: Mapping[str, str]) -> None:
    """Name plugins in the configuration; comments are kept.

    Args:
        config: the file.
        plugin_ids: go to ``plugins.enabled``.
        requirements: name of a distribution to its line in ``plugins.install``.

    Raises:
        ConfigError: the file cannot be edited.
    """
    for plugin_id in plugin_ids:
        add_to_list(config, "plugins.enabled", plugin_id, out_of="plugins.disabled")
    for name, line in requirements.items():
        drop_requirement(config, name, apart_from=line)
        add_to_list(config, "plugins.install", line)


def drop_requirement(config: Path, name: str, *, apart_from: str = "") -> None:
    """Remove the lines of a distribution from ``plugins.install``.

    Args:
        config: the file.
        name: normalised name of the distribution.
        apart_from: a line that stays.

    Raises:
        ConfigError: the file cannot be edited.
    """
    if config.exists():
        remove_from_list(
            config,
            "plugins.install",
            lambda line: required_name(line) == name and line != apart_from,
        )


def required_name(line: str) -> str:
    """Return the normalised name at the beginning of a requirement."""
    found = re.match(r"[A-Za-z0-9][\w.-]*", line.strip())
    return normalise(found[0]) if found else ""
