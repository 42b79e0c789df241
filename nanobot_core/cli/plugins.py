"""``nanobot plugins``: what is installed, whether it runs, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from nanobot_core.cli.group import Entry, LazyGroup
from nanobot_core.cli.options import (
    AsJson,
    Options,
    changes_since_lock,
    gateway_client,
    load_catalogue,
    load_settings,
    open_agent,
    options_of,
)
from nanobot_core.cli.output import fail, print_json, render_table, run_async, stderr, stdout, warn
from nanobot_core.errors import ConfigError, NanobotError, PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click.core import Command, Context

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.catalogue import Catalogue, Selection
    from nanobot_core.plugins.health import PluginReport
    from nanobot_core.plugins.index import InstalledPlugin
    from nanobot_core.plugins.tool_names import NameClash

NOTHING_INSTALLED = (
    "no plugin is installed; run python3 -m pip install 'nanobot-core[standard]' for the usual ones"
)


_INSTALL = "nanobot_core.cli.install"
_DEVKIT = frozenset({"bisect", "build", "check", "compat", "dev", "new"})
"""Commands of nanobot-devkit, which is not installed with the core."""


class PluginsGroup(LazyGroup):
    """The commands of ``nanobot plugins``, those of plugins behind them."""

    extends: ClassVar[str | None] = "plugins"
    table: ClassVar[Sequence[Entry]] = (
        Entry("add", "Install plugins.", f"{_INSTALL}:add"),
        Entry("remove", "Remove a plugin, however broken it is.", f"{_INSTALL}:remove"),
        Entry("upgrade", "Install newer versions of plugins.", f"{_INSTALL}:upgrade"),
        Entry("sync", "Install what the configuration or the lock names.", f"{_INSTALL}:sync"),
        Entry("lock", "Record the installed plugins in nanobot.lock.", f"{_INSTALL}:lock"),
        Entry("search", "Search published plugins.", f"{_INSTALL}:search"),
    )

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that `args` begin with; name the package of one that is missing."""
        if args[0] in _DEVKIT and args[0] not in self.list_commands(ctx):
            remedy = "install it with python3 -m pip install nanobot-devkit"
            ctx.fail(f"'nanobot plugins {args[0]}' comes with nanobot-devkit; {remedy}")
        return super().resolve_command(ctx, args)


app: typer.Typer = typer.Typer(
    cls=PluginsGroup,
    name="plugins",
    help="List, inspect, install, enable and disable plugins.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
PluginId = Annotated[str, typer.Argument(metavar="ID", help="Id of a plugin.")]


@app.callback()
def _report_interrupted(ctx: typer.Context) -> None:
    """List, inspect, install, enable and disable plugins."""
    from nanobot_core.config.environment import process_environment, resolve_home
    from nanobot_core.install import JOURNAL

    home = resolve_home(process_environment())
    if (home / JOURNAL).exists():
        from nanobot_core.install.place import interrupted_change

        if interrupted := interrupted_change(home):
            warn(interrupted)


def _installed(ctx: typer.Context) -> tuple[LoadedConfig, Catalogue]:
    options = options_of(ctx)
    loaded = load_settings(options, lenient=True)
    return loaded, load_catalogue(options, loaded)


@app.command("list")
def list_plugins(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List installed plugins and those that the configuration names; none is imported.

    Example: nanobot plugins list
    """
    agent = open_agent(options_of(ctx), lenient=True)
    reports = _running_reports(ctx) or agent.plugins.reports()
    clashes = _clashes(agent.plugins.catalogue, agent.loaded.settings.tools.aliases)
    if as_json:
        listed = [asdict(report) for report in reports]
        print_json({"plugins": listed, "clashes": [_clash_data(clash) for clash in clashes]})
        return
    if not agent.plugins.catalogue.selections:
        stderr().print(NOTHING_INSTALLED, markup=False, soft_wrap=True)
    if reports:
        rows = [
            (each.id, each.state, each.version, _summary(each), each.summary or each.reason)
            for each in reports
        ]
        render_table(("Plugin", "State", "Version", "Gives", "About"), rows)
    _tell_remedies(reports)
    for clash in clashes:
        _say(f"{clash.claim}: {clash.outcome}; {clash.remedy}", aside=True)


@app.command()
def inspect(ctx: typer.Context, plugin_id: PluginId, as_json: AsJson = False) -> None:
    """Show all that a plugin gives, reaches and reads, and its origin; it is not imported.

    Example: nanobot plugins inspect telegram
    """
    from nanobot_core.cli.config import config_file
    from nanobot_core.install.lock import lock_path
    from nanobot_core.install.origin import origin_of

    loaded, catalogue = _installed(ctx)
    selection = _selection(catalogue, plugin_id)
    plugin, condition = selection.plugin, selection.condition
    manifest = plugin.manifest
    reaches = manifest.capabilities if manifest else ()
    origin = origin_of(plugin.distribution, loaded.home, lock_path(config_file(options_of(ctx))))
    if as_json:
        facts = {**asdict(plugin), "reaches": reaches, **asdict(origin)}
        print_json({**facts, "state": condition.state, "reason": condition.reason})
        return
    _say(f"{plugin.id} {plugin.version} ({plugin.distribution}): {plugin.summary}")
    _say(f"state: {condition.state}, {condition.reason}")
    if origin.publisher:
        _say(f"publisher: {origin.publisher}, as its index said")
    if origin.digest:
        _say(f"digest: {origin.digest}" + (f", {origin.locked}" if origin.locked else ""))
    if manifest is None:
        return
    for item in manifest.declarations:
        _say(f"{item.kind}: {item.name}" + (f", {item.summary}" if item.summary else ""))
    for section in manifest.settings:
        _say(f"settings: {section.path}")
        for name in section.environment:
            _say(f"environment: {name}")
    for title, values in (
        ("hook", tuple(manifest.hooks)),
        ("reaches", reaches),
        ("not agreed to", catalogue.consents.news_of(plugin)),
        ("host", manifest.facts.hosts),
        ("requires", manifest.facts.requires),
    ):
        for value in values:
            _say(f"{title}: {value}")


@app.command()
def why(ctx: typer.Context, plugin_id: PluginId, as_json: AsJson = False) -> None:
    """Explain why a plugin runs, or why it does not.

    Example: nanobot plugins why telegram
    """
    from nanobot_core.cli.plugin_reasons import triggers

    loaded, catalogue = _installed(ctx)
    missing = next((item for item in catalogue.missing if item.plugin.id == plugin_id), None)
    selection = missing or _selection(catalogue, plugin_id)
    data = {
        "id": plugin_id,
        "runs": selection.enabled,
        "reason": selection.condition.reason,
        "remedy": selection.condition.remedy,
    }
    manifest = selection.plugin.manifest
    found = triggers(manifest, loaded.settings) if manifest and selection.enabled else []
    _tell_why(data, found, as_json=as_json)


@app.command()
def hooks(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all hooks, those that plugins declare included.

    Example: nanobot plugins hooks
    """
    from nanobot_core.cli.hook_facts import hook_rows

    _, catalogue = _installed(ctx)
    rows = hook_rows(catalogue)
    if as_json:
        print_json(rows)
        return
    render_table(
        ("Hook", "Kind", "Limit", "Declared by", "Implemented by"),
        [tuple(row.values()) for row in rows],
    )
    _say("nanobot explain hook NAME prints a contract", aside=True)


@app.command()
def order(
    ctx: typer.Context,
    hook: Annotated[str, typer.Argument(help="Name of a hook, such as finalize_content.")],
    as_json: AsJson = False,
) -> None:
    """List the implementers of a hook in the order in which they are called, each with the reason.

    Their entry modules are imported, because an implementation may ask to come first or last.

    Example: nanobot plugins order finalize_content
    """
    from nanobot_core.cli.hook_facts import known_hooks
    from nanobot_core.cli.plugin_reasons import explain_order
    from nanobot_core.text import nearest

    loaded, catalogue = _installed(ctx)
    known = known_hooks(catalogue)
    if hook not in known:
        close = " or ".join(f"'{name}'" for name in nearest(hook, known))
        fail(f"there is no hook '{hook}'" + (f"; did you mean {close}?" if close else ""), 2)
    places = explain_order(hook, catalogue, loaded.settings.plugins)
    if as_json:
        print_json([{"plugin": plugin, "reason": reason} for plugin, reason in places])
    elif not places:
        _say(f"no enabled plugin implements '{hook}'")
    else:
        rows = [(number, *place) for number, place in enumerate(places, 1)]
        render_table(("#", "Plugin", "Because"), rows)


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the state of each plugin: in the running gateway, or else after starting all here.

    Example: nanobot plugins status
    """
    reports = _running_reports(ctx) or run_async(_start_all(options_of(ctx)))
    if changes := changes_since_lock(load_settings(options_of(ctx), lenient=True)):
        _say(changes, aside=True)
    if as_json:
        print_json([asdict(report) for report in reports])
        return
    render_table(
        ("Plugin", "State", "Reason"), [(each.id, each.state, each.reason) for each in reports]
    )
    _tell_remedies(reports)


@app.command()
def top(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what each plugin costs: in the running gateway, or else after starting all here.

    Memory is what the process grew by while the plugin was imported, and tokens are estimates:
    those of its tools and passages in a request, and those that providers read again because it
    changed the beginning of requests.

    Example: nanobot plugins top
    """
    reports = _running_reports(ctx) or run_async(_start_all(options_of(ctx)))
    found = [report for report in reports if report.costs.start_s]
    found.sort(key=lambda report: -sum(hook.total_s for hook in report.hooks))
    if as_json:
        print_json([_cost_data(report) for report in found])
        return
    rows = [tuple(_cost_data(report).values())[:-1] for report in found]
    columns = ("Plugin", "Start ms", "Import ms", "MB", "Calls", "Errors", "Total ms", "Blocked ms")
    render_table((*columns, "Prompt tokens", "Cache misses", "Lost tokens"), rows)
    if any(report.hooks for report in found):
        stdout().print()
        titles = ("Plugin", "Hook", "Calls", "Errors", "Total ms", "Worst ms", "Blocked ms")
        render_table((*titles, "Circuit"), [row for each in found for row in _hook_rows(each)])


def _cost_data(report: PluginReport) -> dict[str, object]:
    """Return what a plugin costs, the figures of its hooks last."""
    costs, hooks = report.costs, report.hooks
    return {
        "id": report.id,
        "start_ms": _ms(costs.start_s),
        "import_cpu_ms": _ms(costs.import_cpu_s),
        "memory_mb": round(costs.memory_bytes / 1_000_000, 1),
        "hook_calls": sum(hook.calls for hook in hooks),
        "errors": sum(hook.errors + hook.timeouts for hook in hooks),
        "total_ms": _ms(sum(hook.total_s for hook in hooks)),
        "blocked_ms": _ms(costs.blocked_s),
        "prompt_tokens": report.tool_tokens + costs.passage_tokens,
        "cache_misses": costs.cache_misses,
        "lost_tokens": costs.lost_tokens,
        "hooks": [asdict(hook) for hook in hooks],
    }


def _hook_rows(report: PluginReport) -> Iterator[tuple[object, ...]]:
    """Yield a row for each hook, the one that took the most time first."""
    for hook in sorted(report.hooks, key=lambda hook: -hook.total_s):
        errors, blocked_ms = hook.errors + hook.timeouts, _ms(hook.blocked_s)
        times = _ms(hook.total_s), _ms(hook.worst_s), blocked_ms
        yield report.id, hook.hook, hook.calls, errors, *times, hook.circuit


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 1)


def _running_reports(ctx: typer.Context) -> list[PluginReport] | None:
    """Return the reports of the running gateway, or ``None`` if none runs."""
    from nanobot_core.app.wire import from_json
    from nanobot_core.plugins.health import PluginReport

    client = gateway_client(ctx)
    if not client.is_there:
        return None
    found = run_async(client.call("plugins"))
    return [from_json(PluginReport, item) for item in found] if isinstance(found, list) else None


@app.command()
def reload(ctx: typer.Context, plugin_id: PluginId) -> None:
    """Let the running gateway replace a plugin by what is installed now; ends a quarantine.

    Example: nanobot plugins reload telegram
    """
    from nanobot_core.app.client import CHANGE_LIMIT_S

    client = gateway_client(ctx)
    _say(str(run_async(client.call("reload_plugin", limit_s=CHANGE_LIMIT_S, id=plugin_id))))


def reload_gateway(ctx: typer.Context, *, aside: bool = False) -> None:
    """Apply the changed configuration to the gateway, if one runs.

    Args:
        ctx: the command.
        aside: print the result on stderr.
    """
    from nanobot_core.app.client import CHANGE_LIMIT_S
    from nanobot_core.app.wire import ControlError

    client = gateway_client(ctx)
    if not client.is_there:
        return
    try:
        done = run_async(client.call("reload", limit_s=CHANGE_LIMIT_S))
        _say(f"gateway: {done['text'] if isinstance(done, dict) else done}", aside=aside)
    except ControlError as error:
        _say(f"the gateway did not reload: {error}; run nanobot gateway reload", aside=True)


@app.command()
def enable(ctx: typer.Context, plugin_id: PluginId) -> None:
    """Let a plugin run, agree to all that it reaches, and show that. Comments are kept.

    A running gateway applies the change.

    Example: nanobot plugins enable telegram
    """
    from nanobot_core.plugins.catalogue import described
    from nanobot_core.plugins.consent import agree

    loaded, catalogue = _installed(ctx)
    plugin = _selection(catalogue, plugin_id).plugin
    problem = plugin.problem
    if plugin.manifest is None and not problem:
        try:
            plugin = described(plugin, loaded.home / "cache")
        except PluginError as error:
            problem = error.reason
    news = catalogue.consents.news_of(plugin)
    agree(loaded.home, [plugin])
    changed = _move(options_of(ctx), plugin_id, source="plugins.disabled", target="plugins.enabled")
    word = "is enabled" if changed or news else "was enabled already"
    reaches = ", ".join(plugin.manifest.capabilities if plugin.manifest else ())
    unknown = "not known" if plugin.manifest is None else "nothing that it declares"
    _say(f"{plugin_id} {word}; it reaches: {reaches or unknown}")
    if news:
        _say(f"new since you last agreed: {', '.join(news)}")
    if not problem and plugin.isolation is None:
        problem = _tell_import_cost(plugin)
    if problem:
        _say(f"it cannot run yet: {problem}", aside=True)
    reload_gateway(ctx)


def _tell_import_cost(plugin: InstalledPlugin) -> str:
    """Say what the import of a plugin costs; return why it does not import, or an empty string."""
    from nanobot_core.plugins.examine import IMPORT_BUDGET_MS, measure_import

    try:
        cost = measure_import(plugin.id, plugin.file)
    except PluginError as error:
        return error.reason
    much = f", more than {IMPORT_BUDGET_MS} ms" if cost.cpu_ms > IMPORT_BUDGET_MS else ""
    _say(f"its import takes {cost.cpu_ms:g} ms{much}, and {cost.memory_mb:g} MB", aside=True)
    return ""


@app.command()
def disable(
    ctx: typer.Context,
    plugin_id: PluginId,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also disable the plugins that require it.")
    ] = False,
) -> None:
    """Keep a plugin from running, also in a running gateway. Comments in the file are kept.

    Example: nanobot plugins disable telegram
    """
    options = options_of(ctx)
    loaded = load_settings(options, lenient=True)
    catalogue = load_catalogue(options, loaded)
    if plugin_id not in loaded.settings.plugins.enabled:
        _selection(catalogue, plugin_id)
    leaving = (*reversed(catalogue.dependents(plugin_id)), plugin_id)
    if len(leaving) > 1 and not cascade:
        needy = " and ".join(f"'{each}'" for each in leaving[:-1])
        fail(f"plugin '{plugin_id}' is required by {needy}; --cascade disables them as well")
    for each in leaving:
        if each in loaded.settings.plugins.required:
            fail(f"plugin '{each}' is named under plugins.required; remove it there first")
    for each in leaving:
        changed = _move(options, each, source="plugins.enabled", target="plugins.disabled")
        _say(f"{each} {'is disabled' if changed else 'was disabled already'}")
    reload_gateway(ctx)


async def _start_all(options: Options) -> list[PluginReport]:
    """Start every enabled plugin by itself, and return their condition and what each cost."""
    agent = open_agent(options)
    host = agent.plugins
    try:
        for plugin in host.catalogue.enabled():
            with suppress(PluginError, ConfigError):  # the report says why
                await host.activate(plugin.id)
        await host.load_tools()
        return host.reports()
    finally:
        await host.stop()


def _selection(catalogue: Catalogue, plugin_id: str) -> Selection:
    from nanobot_core.plugins.published import Published
    from nanobot_core.text import nearest

    selection = catalogue.selections.get(plugin_id)
    if selection is not None:
        return selection
    of_distribution = plugin_id.removeprefix("nanobot-")
    if of_distribution in catalogue.selections:
        raise NanobotError(f"'{plugin_id}' is a package; the id of its plugin is {of_distribution}")
    if package := Published.load().distribution_of(of_distribution):
        hint = f"run nanobot plugins add {package}"
    elif close := nearest(plugin_id, catalogue.selections, limit=1):
        hint = f"did you mean '{close[0]}'?"
    else:
        hint = "see nanobot plugins list"
    raise NanobotError(f"plugin '{plugin_id}' is not installed; {hint}")


def _move(options: Options, plugin_id: str, *, source: str, target: str) -> bool:
    """Put an id from one list of the file into another, and return whether the file has changed."""
    from nanobot_core.cli.config import config_file
    from nanobot_core.config.editing import add_to_list

    return add_to_list(config_file(options), target, plugin_id, out_of=source)


def _clashes(catalogue: Catalogue, aliases: dict[str, str]) -> tuple[NameClash, ...]:
    from nanobot_core.plugins.tool_names import assign_tool_names

    claims: dict[str, list[str]] = {}
    for plugin, declaration in catalogue.declared("tools"):
        claims.setdefault(plugin.id, []).append(declaration.name)
    keepers = {item.plugin.id for item in catalogue.selections.values() if item.plugin.bundled}
    _, clashes = assign_tool_names(claims, aliases, keepers)
    return (*clashes, *catalogue.contested.values())


def _clash_data(clash: NameClash) -> dict[str, object]:
    return {**asdict(clash), "kind": clash.kind.removesuffix("s"), "remedy": clash.remedy}


def _summary(report: PluginReport) -> str:
    """Short form of what a plugin gives: names where they are few."""
    return "; ".join(
        f"{kind} {', '.join(names)}" if len(names) <= 3 else f"{len(names)} {kind}"
        for kind, names in report.gives.items()
    )


def _tell_remedies(reports: list[PluginReport]) -> None:
    for report in reports:
        if report.remedy and report.state != "disabled":
            _say(f"{report.id}: {report.reason}; {report.remedy}", aside=True)


def _tell_why(data: dict[str, object], found: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({**data, "triggers": found})
        return
    remedy = f"; {data['remedy']}" if data["remedy"] else ""
    _say(f"{data['id']} {'may run' if data['runs'] else 'does not run'}: {data['reason']}{remedy}")
    for trigger in found:
        _say(f"- {trigger}")


def _say(text: str, *, aside: bool = False) -> None:
    (stderr() if aside else stdout()).print(text, markup=False, soft_wrap=True)
