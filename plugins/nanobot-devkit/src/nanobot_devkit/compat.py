"""``nanobot plugins compat``: whether a wheel fits releases of nanobot-core."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nanobot_devkit.code import Misfit, parse_modules
from nanobot_devkit.contract import contract_misfits
from nanobot_devkit.release import Release, compatible_range, select_releases, shipped_releases
from nanobot_devkit.usage import Usage
from nanobot_devkit.wheel import CORE, PluginCode, read_wheel


def compat(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="Wheel of a plugin.")],
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="A..B|FILE",
            help="Version, range, hookspecs file or wheel of nanobot-core; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report which releases of nanobot-core a wheel fits, without running its code.

    By default, compares with the installed release. Exits 1 if there is a release that it does
    not fit.

    Example: nanobot plugins compat dist/nanobot_weather-0.1.0-py3-none-any.whl --against 0.1..0.3
    """
    code = read_wheel(wheel)
    releases = select_releases(against or [])
    parsed = ParsedCode(code, releases)
    found = {each.release: parsed.misfits(each) for each in releases}
    fits = {version: all(each.is_warning for each in found[version]) for version in found}
    if as_json:
        listed = [
            {"release": version, "fits": fits[version], "findings": list(map(asdict, each))}
            for version, each in found.items()
        ]
        data = {"name": code.name, "version": code.version, "releases": listed}
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        for version, each in found.items():
            word = "fits" if fits[version] else "does not fit"
            typer.echo(f"{code.name} {code.version} {word} {CORE} {version}")
            for misfit in each:
                typer.echo(f"  {'warning: ' if misfit.is_warning else ''}{misfit}")
    if not all(fits.values()):
        raise typer.Exit(1)


class ParsedCode:
    """The code of a package, parsed once and compared with any number of releases.

    Args:
        code: what was read.
        releases: those to compare with.
    """

    def __init__(self, code: PluginCode, releases: Sequence[Release]) -> None:
        self._code = code
        public = {name for each in releases for name in each.names}
        self._modules, self._broken = parse_modules(code.sources, public)

    def misfits(self, release: Release) -> list[Misfit]:
        """Return what does not fit a release: range, manifest and code."""
        declared = [*_range(self._code, release), *_manifests(self._code, release)]
        return [*declared, *self.code_misfits(release)]

    def code_misfits(self, release: Release) -> list[Misfit]:
        """Return what the code uses and a release does not offer, each once."""
        found = list(self._broken)
        for module in self._modules:
            found += module.misfits(release)
            found += Usage(module, release).misfits()
        found += contract_misfits(self._modules, release)
        return list(dict.fromkeys(found))


def _range(code: PluginCode, release: Release) -> Iterator[Misfit]:
    if code.core is None:
        remedy = f'declare it: dependencies = ["{CORE}{compatible_range(release.release)}"]'
        yield Misfit("requirement", "METADATA", f"it does not require {CORE}", remedy, True)
    elif not code.core.contains(release.release, prereleases=True):
        message = f"it requires {CORE}{code.core}, so {release.release} does not load it"
        remedy = "change the range if nothing else is reported, and test it with this release"
        yield Misfit("requirement", "METADATA", message, remedy)


def _manifests(code: PluginCode, release: Release) -> Iterator[Misfit]:
    core_hooks = {name for each in (release, *shipped_releases()) for name in each.hooks}
    for place, manifest in code.manifests.items():
        if manifest.schema_version != release.manifest_version:
            message = f"its format {manifest.schema_version} is not that of {release.release}"
            yield Misfit("manifest", place, message, "run nanobot plugins build with that release")
        for hook, generation in manifest.hooks.items():
            offered = release.hooks.get(hook)
            if offered is None and hook in core_hooks:
                message = f"{release.release} has no hook '{hook}'"
                yield Misfit("hook", place, message, "see the changelog of nanobot-core")
            elif offered is not None and offered.generation != generation:
                message = (
                    f"hook '{hook}' is written for its generation {generation}, "
                    f"{release.release} has generation {offered.generation}"
                )
                remedy = f"read its contract in {release.release}, then run nanobot plugins build"
                yield Misfit("hook", place, message, remedy)
        for kind in sorted({each.kind for each in manifest.declarations}):
            if kind not in release.contributions:
                message = f"{release.release} does not know contributions of the kind '{kind}'"
                yield Misfit("manifest", place, message, "see the changelog of nanobot-core")
