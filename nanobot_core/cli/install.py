"""``nanobot plugins add|remove|upgrade|sync|lock|search``, and ``nanobot install``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.config import config_file
from nanobot_core.cli.options import AsJson, gateway_client, load_settings, options_of
from nanobot_core.cli.output import fail, print_json, render_table, stderr, stdout, warn
from nanobot_core.cli.plugins import PluginId, reload_gateway
from nanobot_core.cli.progress import Bar
from nanobot_core.errors import InstallError
from nanobot_core.install.change import carry_out, enable, required_name
from nanobot_core.install.environment import (
    Interpreter,
    describe_environment,
    find_environment,
)
from nanobot_core.install.indexes import refresh_indexes
from nanobot_core.install.installer import Installer, installer_for
from nanobot_core.install.journal import Journal
from nanobot_core.install.lock import (
    Lock,
    installed_lock,
    lock_path,
    read_lock,
    to_restore,
    write_lock,
)
from nanobot_core.install.place import Place, exclusive, journal_folder
from nanobot_core.install.plan import Plan, installed_distributions
from nanobot_core.install.planner import Planner
from nanobot_core.install.removal import carry_out_removal, plan_removal
from nanobot_core.install.single_file import add_file
from nanobot_core.install.source import Source, parse_source
from nanobot_core.plugins.index import load_installed, local_plugins
from nanobot_core.plugins.published import Published
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.operation import PlannedPlugin

What = Annotated[
    list[str],
    typer.Argument(metavar="NAME|WHEEL|FOLDER|FILE.py", help="A plugin, such as nanobot-telegram."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")]
NOT_A_SANDBOX = (
    "A plugin is Python code and can do everything that this account can. The list is what it "
    "declares; nanobot enforces a part of it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What the commands of this module have in common.

    Attributes:
        ctx: the command.
        loaded: the configuration.
        place: where plugins are installed.
        installer: installs there.
        published: the indexes of plugins.
        yes: do not ask.
        as_json: print JSON instead of text.
        agreed: digest of the plan that the owner has agreed to; empty to ask.
    """

    ctx: typer.Context
    loaded: LoadedConfig
    place: Place
    installer: Installer
    published: Published
    yes: bool
    as_json: bool
    agreed: str

    def say(self, text: str) -> None:
        """Print a line for people."""
        (stderr() if self.as_json else stdout()).print(text, markup=False, soft_wrap=True)

    def ask(self, question: str) -> bool:
        """Ask the owner at the terminal, and return the answer.

        Raises:
            InstallError: standard input is no terminal.
        """
        if not sys.stdin.isatty():
            remedy = "run it at a terminal, or add --yes if you have read what is shown"
            raise InstallError("not confirmed", "there is no terminal to ask at", remedy)
        return typer.confirm(question, err=True)

    def confirm(self, question: str) -> None:
        """End the command unless the owner agrees, or has said so before."""
        if not self.yes and not self.ask(question):
            fail("not confirmed; nothing has changed")

    @property
    def planner(self) -> Planner:
        """Plans installations here."""
        return Planner(self.place, self.installer, self.published)


@contextmanager
def _work(
    ctx: typer.Context,
    *arguments: str,
    yes: bool = False,
    as_json: bool = False,
    installs: bool = True,
    agreed: str = "",
) -> Iterator[_Work]:
    """Prepare a change of the environment; one that was interrupted is undone first.

    Args:
        ctx: the command.
        arguments: the command of pip for the same purpose.
        yes: do not ask.
        as_json: print JSON.
        installs: it needs an environment that can be written, because it concerns distributions.
        agreed: digest of the plan that the owner has agreed to.
    """
    options = options_of(ctx)
    loaded = load_settings(options, lenient=True)
    with ExitStack() as stack:
        stack.enter_context(exclusive(loaded.home))
        here = Interpreter.running()
        place = Place(
            environment=(
                find_environment(here, *arguments) if installs else describe_environment(here)
            ),
            home=loaded.home,
            config=config_file(options),
            given_config=options.config,
            profile=options.profile,
        )
        if place.journal.is_open:
            warn(f"an earlier change was interrupted and is undone first: {place.journal.command}")
            place.journal.undo()
            loaded = load_settings(options, lenient=True)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nanobot-"))
        yield _Work(
            ctx=ctx,
            loaded=loaded,
            place=place,
            installer=installer_for(place.environment, Path(folder)),
            published=_published(loaded),
            yes=yes or bool(agreed),
            as_json=as_json,
            agreed=agreed,
        )


def _published(loaded: LoadedConfig) -> Published:
    """Return the indexes, those that are configured fetched again."""
    base = loaded.path.parent if loaded.path else loaded.home
    cache = loaded.home / "cache"
    for problem in refresh_indexes(loaded.settings.plugins.indexes, base, cache):
        warn(problem)
    return Published.load(cache)


def add(
    ctx: typer.Context,
    what: What,
    yes: Yes = False,
    as_json: AsJson = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    agree: Annotated[
        str,
        typer.Option(
            metavar="DIGEST",
            help="Agree to the plan with this digest, which --dry-run --json prints.",
        ),
    ] = "",
) -> None:
    """Install plugins, after showing what changes and what they reach; a failure is undone.

    Examples: nanobot plugins add nanobot-telegram; nanobot install ./my_tool.py
    """
    installs = not all(each.endswith(".py") for each in what)
    with _work(
        ctx, "install", *what, yes=yes, as_json=as_json, installs=installs, agreed=agree
    ) as work:
        sources = [parse_source(each, Path.cwd(), work.published) for each in what]
        files = [each.path for each in sources if each.kind == "file" and each.path]
        others = [each for each in sources if each.kind != "file"]
        if files and (dry_run or agree):
            fail("--dry-run and --agree are for distributions, not for a file", 2)
        if others:
            requirements = {each.name: _line_of(each) for each in others if each.name}
            plan = _planned(work, others)
            if dry_run:
                _show(work, plan)
                if as_json:
                    print_json(_plan_data(plan))
                return
            requirements |= _lines_of_wheels(others, plan)
            _install(work, plan, requirements=requirements)
        for file in files:
            _add_file(work, file)


def _lines_of_wheels(sources: Sequence[Source], plan: Plan) -> dict[str, str]:
    """Return the lines of wheels and folders, whose names are known after they are read."""
    known = {each.name for each in sources}
    paths = [each.path for each in sources if each.path and not each.name]
    names = [name for name in plan.wheels if name not in known]
    return {name: f"{name} @ file:{path}" for name, path in zip(names, paths, strict=False)}


def _line_of(source: Source) -> str:
    return f"{source.name} @ file:{source.path}" if source.path else source.requirement


def _planned(
    work: _Work, sources: Sequence[Source], *, upgrade: bool = False, lock: Lock | None = None
) -> Plan:
    planner = work.planner
    steps = ("building", "resolving and downloading")
    with Bar(steps, shown=not work.as_json) as bar:
        bar.step("building")
        wheels = planner.local_wheels(sources)
        if lock is None:
            with bar.paused():
                _check_names(work, planner, [*wheels, *(each.name for each in sources)])
        bar.step("resolving and downloading")
        return planner.plan(sources, wheels, upgrade=upgrade, lock=lock)


def _check_names(work: _Work, planner: Planner, names: Sequence[str]) -> None:
    """Let the owner confirm a name that resembles that of a published plugin."""
    try:
        planner.check_names(names)
    except InstallError as error:
        if not sys.stdin.isatty():
            raise
        warn(str(error))
        if not work.ask("Is the name right?"):
            raise InstallError("not confirmed", "nothing has changed") from error


def _install(work: _Work, plan: Plan, *, requirements: dict[str, str] | None = None) -> None:
    """Show a plan, ask, carry it out, and let a running gateway use it.

    Args:
        work: the command.
        plan: what to install.
        requirements: name to line of what the configuration is to name; ``None`` leaves the
            configuration as it is.
    """
    ids = [plugin.id for plugin in plan.plugins if plugin.is_asked_for]
    if not plan.changes:
        _already(work, plan, requirements)
        return
    _show(work, plan)
    if work.agreed and work.agreed != plan.digest:
        raise InstallError("not installed", "it is another plan than the one with this digest")
    if not work.agreed:
        _confirm_growth(work, plan.plugins)
    work.confirm("Install this?")

    def record() -> None:
        if requirements is not None:
            enable(work.place.config, ids, requirements)

    with Bar(("installing", "examining", "starting"), shown=not work.as_json) as bar:

        def agree_to(plugins: Sequence[PlannedPlugin]) -> bool:
            with bar.paused():
                _show_reach(work, plugins)
                _confirm_growth(work, plugins)
                return work.yes or work.ask("It did not say so before. Keep it?")

        todo = carry_out(
            work.place, plan, work.installer, step=bar.step, agree_to=agree_to, record=record
        )
    if work.as_json:
        print_json({**_plan_data(plan), "todo": todo})
    for each in plan.changes:
        work.say(f"{each.name} {each.after} is installed")
    for sentence in todo:
        warn(f"installed, and it cannot run yet: {sentence}")
    if hint := plan.environment.hint:
        work.say(hint)
    reload_gateway(work.ctx, aside=work.as_json)


def _already(work: _Work, plan: Plan, requirements: dict[str, str] | None) -> None:
    if work.as_json:
        print_json({**_plan_data(plan), "todo": []})
    names = ", ".join(plan.named)
    ways = "; to let it run, nanobot plugins enable ID" if requirements is not None else ""
    work.say(f"{names} is up to date here{ways}")


def _confirm_growth(work: _Work, plugins: Sequence[PlannedPlugin]) -> None:
    """Ask about what plugins do that their owner has not agreed to, and about new publishers.

    --yes does not answer this.
    """
    for plugin in plugins:
        if plugin.new_publisher:
            _confirm_at_terminal(work, plugin, plugin.new_publisher, "who publishes it")
        if plugin.news and not plugin.is_new:
            reason = f"it reaches more than you have agreed to: {', '.join(plugin.news)}"
            _confirm_at_terminal(work, plugin, reason, "what it reaches")


def _confirm_at_terminal(work: _Work, plugin: PlannedPlugin, reason: str, subject: str) -> None:
    if not sys.stdin.isatty():
        remedy = "run it at a terminal, where you can agree; the installed version stays"
        raise InstallError(f"plugin '{plugin.id}'", reason, remedy)
    if not work.ask(f"plugin '{plugin.id}': {reason}. Agree?"):
        raise InstallError("not confirmed", f"you did not agree to {subject}")


def _show(work: _Work, plan: Plan) -> None:
    work.say(f"interpreter: {plan.environment.interpreter.python}")
    work.say(f"environment: {plan.environment.label}")
    if not work.as_json:
        rows = [(each.name, each.before or "-", each.after) for each in plan.changes]
        render_table(("Distribution", "Installed", "Then"), rows)
    _show_reach(work, plan.plugins)


def _show_reach(work: _Work, plugins: Sequence[PlannedPlugin]) -> None:
    for plugin in plugins:
        if plugin.publisher:
            work.say(f"{plugin.id} ({plugin.label}) published by: {plugin.publisher}")
        if plugin.reaches is None:
            work.say(f"{plugin.id} ({plugin.label}) does not say what it reaches")
            continue
        reaches = ", ".join(plugin.reaches) or "nothing that it declares"
        work.say(f"{plugin.id} ({plugin.label}) reaches: {reaches}")
    if plugins:
        work.say(NOT_A_SANDBOX)


def _plan_data(plan: Plan) -> dict[str, object]:
    return {
        "python": plan.environment.interpreter.python,
        "environment": plan.environment.label,
        "changes": list(map(asdict, plan.changes)),
        "plugins": list(map(asdict, plan.plugins)),
        "digest": plan.digest,
    }


def _add_file(work: _Work, file: Path) -> None:
    with Bar(("examining", "starting"), shown=not work.as_json) as bar:

        def agree_to(plugin: PlannedPlugin) -> bool:
            with bar.paused():
                _show_reach(work, [plugin])
                return work.yes or work.ask("Add this file?")

        todo = add_file(work.place, file, work.loaded, step=bar.step, agree_to=agree_to)
    if work.as_json:
        print_json({"file": str(file), "plugin": file.stem, "todo": todo})
    work.say(f"{file.stem} is enabled; {file} must stay where it is")
    for sentence in todo:
        warn(f"added, and it cannot run yet: {sentence}")
    reload_gateway(work.ctx, aside=work.as_json)


def remove(
    ctx: typer.Context,
    plugin_id: PluginId,
    with_dependencies: Annotated[
        bool, typer.Option("--with-dependencies", help="Remove what only it requires, too.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a plugin, however broken it is; its data and its settings stay.

    Example: nanobot plugins remove telegram --with-dependencies
    """
    loaded = load_settings(options_of(ctx), lenient=True)
    local = [each.id for each in local_plugins(loaded.settings.plugins.local, loaded.home)]
    names = _distributions(loaded, [plugin_id])
    pip = ("uninstall", "--yes", *(names or [plugin_id]))
    installs = plugin_id not in local
    with _work(ctx, *pip, yes=yes, as_json=as_json, installs=installs) as work:
        removal = plan_removal(plugin_id, work.place, work.loaded)
        names = [*removal.names, *(removal.unneeded if with_dependencies else ())]
        if names:
            work.say(f"will be removed from {work.place.environment.label}: {', '.join(names)}")
        else:
            work.say(f"will no longer be loaded: {removal.file}")
        if removal.unneeded and not with_dependencies:
            kept = ", ".join(removal.unneeded)
            work.say(f"no longer required, and kept without --with-dependencies: {kept}")
        work.confirm("Remove it?")
        withdraw = (
            partial(reload_gateway, ctx, aside=True) if gateway_client(ctx).is_there else None
        )
        try:
            with Bar(("stopping", "removing"), shown=not as_json) as bar:
                carry_out_removal(
                    work.place,
                    removal,
                    work.installer,
                    names=names,
                    step=bar.step,
                    withdraw=withdraw,
                )
        finally:
            reload_gateway(ctx, aside=as_json)
        if as_json:
            print_json({"removed": names, "plugins": removal.ids, "unneeded": removal.unneeded})
        work.say(f"{', '.join(removal.ids) or plugin_id} is removed")


def upgrade(
    ctx: typer.Context,
    plugin_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Plugins; by default all.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Install newer versions; one that reaches more than before needs your consent.

    Example: nanobot plugins upgrade telegram
    """
    names = _distributions(load_settings(options_of(ctx), lenient=True), plugin_ids or ())
    with _work(ctx, "install", "--upgrade", *names, yes=yes, as_json=as_json) as work:
        sources = _upgradable(work, plugin_ids or [])
        if not sources:
            fail("no installed plugin can be upgraded; see nanobot plugins list")
        _install(work, _planned(work, sources, upgrade=True))


def _distributions(loaded: LoadedConfig, ids: Sequence[str]) -> list[str]:
    """Return the distributions of these plugins, or of all that are not working copies."""
    here = load_installed(loaded.home / "cache")
    chosen = [each for each in here if (each.id in ids if ids else not each.editable)]
    return sorted({each.distribution for each in chosen})


def _upgradable(work: _Work, ids: Sequence[str]) -> list[Source]:
    here = {each.id: each for each in work.place.plugins()}
    for unknown in [each for each in ids if each not in here]:
        fail(f"plugin '{unknown}' is not installed; see nanobot plugins list")
    for editable in [each for each in ids if here[each].editable]:
        fail(f"plugin '{editable}' is a working copy; change its files instead")
    chosen = [here[each] for each in ids] or [each for each in here.values() if not each.editable]
    lines = {required_name(each): each for each in work.loaded.settings.plugins.install}
    names = dict.fromkeys(each.distribution for each in chosen)
    base = work.place.config.parent
    return [parse_source(lines.get(name, name), base, work.published) for name in names]


def sync(
    ctx: typer.Context,
    locked: Annotated[
        bool, typer.Option("--locked", help="Install exactly what nanobot.lock contains.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Install what plugins.install names and is missing; nothing is removed.

    Example: nanobot plugins sync --locked
    """
    options = options_of(ctx)
    lock = _lock_of(config_file(options)) if locked else None
    loaded = load_settings(options, lenient=True)
    # An environment that is complete need not be writable.
    lines = _to_install(loaded, lock)
    if lines or Journal(journal_folder(loaded.home)).is_open:
        with _work(ctx, "install", *lines, yes=yes, as_json=as_json) as work:
            lines = _to_install(work.loaded, lock)  # an interrupted change is undone now
            base = work.place.config.parent
            if sources := [parse_source(each, base, work.published) for each in lines]:
                _install(work, _planned(work, sources, lock=lock))
    if lines:
        return
    if as_json:
        print_json({"changes": [], "plugins": [], "todo": []})
    (stderr() if as_json else stdout()).print("nothing to install")


def _to_install(loaded: LoadedConfig, lock: Lock | None) -> list[str]:
    return _missing(loaded) if lock is None else _not_as_locked(lock)


def _lock_of(config: Path) -> Lock:
    file = lock_path(config)
    lock = read_lock(file)
    if lock is None:
        fail(f"there is no {file}; write it with nanobot plugins lock")
    return lock


def _not_as_locked(lock: Lock) -> list[str]:
    names = to_restore(lock, installed_lock())
    return [f"{name}=={lock.distributions[name].version}" for name in names]


def _missing(loaded: LoadedConfig) -> list[str]:
    """Return the lines of ``plugins.install`` that are not satisfied."""
    from packaging.requirements import InvalidRequirement, Requirement

    installed = installed_distributions()
    found = []
    for line in loaded.settings.plugins.install:
        distribution = installed.get(required_name(line))
        if distribution is None:
            found.append(line)
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # it names a path, and is installed
            continue
        if not requirement.specifier.contains(distribution.version, prereleases=True):
            found.append(line)
    return found


def lock(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Write nanobot.lock beside the configuration: names, versions and digests of the plugins.

    Example: nanobot plugins lock
    """
    file = lock_path(config_file(options_of(ctx)))
    found = installed_lock()
    write_lock(file, found)
    if as_json:
        print_json({"file": str(file), **found.model_dump()})
        return
    copies = [name for name, each in found.distributions.items() if not each.digest]
    stdout().print(
        f"wrote {file}: {len(found.distributions)} distributions", markup=False, soft_wrap=True
    )
    if copies:
        warn(f"working copies have no digest: {', '.join(copies)}")


def search(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(help="Words that all must occur.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search the indexes of plugins by name, summary, kind and what they reach.

    Example: nanobot plugins search telegram
    """
    published = _published(load_settings(options_of(ctx), lenient=True))
    installed = installed_distributions()
    wanted = [word.lower() for word in words or ()]
    found = []
    for name, entry in sorted(published.plugins.items()):
        fields = (name, *entry["ids"], entry.get("summary", ""), *entry.get("kinds", ()))
        text = " ".join((*fields, *entry.get("capabilities", ()))).lower()
        if all(word in text for word in wanted):
            version = installed[name].version if name in installed else ""
            found.append({**entry, "installed": version})
    if as_json:
        print_json(found)
    elif found:
        rows = [(e["name"], e["installed"] or "-", e.get("summary", "")) for e in found]
        render_table(("Name", "Installed", "About"), rows)
    else:
        fail(f"no published plugin matches '{' '.join(wanted)}'; nanobot plugins search lists all")
