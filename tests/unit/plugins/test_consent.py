"""The owner is asked again when a plugin comes to do more than they have agreed to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import PluginError
from nanobot_core.config.models import PluginsSettings
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.consent import Consents, agree
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import Declaration, Manifest, SettingsDeclaration
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import HEAD, reconfigured, report
from tests.unit.plugins.test_gates import asked

pytestmark = pytest.mark.anyio

EAR = "@on.before_turn\ndef hear(event): ...\n"
OWNER = "@on.choose_approval\ndef answer(event): return Ticket(True, 'me')\n"
JUDGE = "@on.authorize_tool_call\ndef judge(event): return Deny('as before')\n"
NEWS = "answers approval questions in the owner's name"
DOES_NOTHING = {
    "check_health",
    "contribute_checks",
    "contribute_hookspecs",
    "contribute_settings",
    "describe_plugin",
    "settings_changed",
    "start",
    "stop",
}
"""Hooks that show a plugin no content and let it decide nothing."""


def plugin(manifest: Manifest | None = None, *, bundled: bool = False) -> InstalledPlugin:
    return InstalledPlugin(
        id="x", target="x", distribution="x", version="1", manifest=manifest, bundled=bundled
    )


@pytest.mark.promise(25)
def test_every_hook_says_what_it_lets_a_plugin_do() -> None:
    silent = {name for name, point in declared_hooks().items() if not point.reaches}

    assert silent == DOES_NOTHING
    assert not any("," in point.reaches for point in declared_hooks().values())  # it is listed


def test_all_that_a_plugin_does_is_a_capability() -> None:
    section = SettingsDeclaration("x", "x:Settings", {}, ("X_KEY", "*"))
    manifest = Manifest(
        id="x",
        declarations=(Declaration("services", "a"), Declaration("services", "b")),
        hooks={"choose_approval": 1, "bakery_recipes": 1, "start": 1},
        settings=(section,),
    )

    assert manifest.reaches == {
        "contribute_services": "runs as long as the gateway",
        "choose_approval": NEWS,
        "bakery_recipes": "takes part in 'bakery_recipes'",
        "environment X_KEY": "reads the variable X_KEY",
        "environment *": "reads any environment variable",
    }


def test_what_was_agreed_to_is_kept_and_news_are_told(tmp_path: Path) -> None:
    before, after = (
        Manifest(id="x", hooks={"before_turn": 1}),
        Manifest(id="x", hooks={"before_turn": 1, "choose_approval": 1}),
    )
    assert Consents.load(tmp_path).news_of(plugin(after)) == ()  # installing it was the consent

    agree(tmp_path, [plugin(before)])

    kept = Consents.load(tmp_path)
    assert (kept.news_of(plugin(before)), kept.news_of(plugin(after))) == ((), (NEWS,))
    assert kept.news_of(plugin(after, bundled=True)) == ()
    assert kept.news_of(plugin()) == ()
    assert (tmp_path / "plugins" / "consent.json").stat().st_mode & 0o077 == 0
    agree(tmp_path, [plugin(after)])
    assert Consents.load(tmp_path).news_of(plugin(after)) == ()


@pytest.mark.parametrize("damage", ["", "[]", '{"x": 1}', "[" * 100_000, "\x00"])
def test_a_damaged_record_is_no_consent(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "plugins" / "consent.json"
    file.parent.mkdir()
    file.write_text(damage)
    listens = plugin(Manifest(id="x", hooks={"before_turn": 1}))

    catalogue = Catalogue([listens], PluginsSettings(), consents=Consents.load(tmp_path))

    chosen = catalogue.selections["x"]
    assert (chosen.enabled, chosen.condition.state) == (False, "unconfirmed")
    assert str(file) in chosen.condition.reason
    assert chosen.condition.remedy
    with pytest.raises(PluginError, match="remove it"):
        agree(tmp_path, [listens])
    assert file.read_text() == damage


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "plugins").write_text("in the way")

    with pytest.raises(PluginError, match="cannot be"):
        agree(tmp_path, [plugin(Manifest(id="x", hooks={"before_turn": 1}))])


def upgrade(site: Path, code: str, *, is_described: bool, hooks: JsonObject) -> None:
    """Put another version of the plugin ``guest`` in the place of the installed one."""
    for info in site.glob("acme_guest*.dist-info"):
        for file in info.iterdir():
            file.unlink()
        info.rmdir()
    manifest = manifest_of("guest", hooks=hooks) if is_described else None
    write_plugin(site, "guest", code=HEAD + code, manifest=manifest)


def forget_code() -> None:
    """Do what the start of another process does."""
    for name in [name for name in sys.modules if name.startswith("acme_guest")]:
        del sys.modules[name]


async def test_a_plugin_that_is_new_is_announced_once(site: Path, make_host: MakeHost) -> None:
    upgrade(site, EAR, is_described=True, hooks={"before_turn": 1})
    told: list[str] = []
    sink = logger.add(told.append, level="INFO", format="{message}", filter="nanobot_core.plugins")
    for _ in range(2):
        host = make_host()
        await host.start()
        await host.stop()
        forget_code()
    logger.remove(sink)

    news = [line.strip() for line in told if "is new" in line]
    assert news == ["plugin 'guest' is new; it reaches: reads messages"]


@pytest.mark.promise(25)
@pytest.mark.parametrize("is_described", [True, False])
async def test_an_upgrade_that_does_more_stays_off_until_its_owner_agrees(
    site: Path, make_host: MakeHost, home: Path, is_described: bool
) -> None:
    upgrade(site, EAR, is_described=is_described, hooks={"before_turn": 1})
    host = make_host()
    await host.start()
    assert report(host, "guest").state == "active"
    await host.stop()
    forget_code()
    more: JsonObject = {"before_turn": 1, "choose_approval": 1}
    upgrade(site, EAR + OWNER, is_described=is_described, hooks=more)

    host = make_host()
    await host.start()

    found = report(host, "guest")
    assert (found.state, NEWS in found.reason) == ("unconfirmed", True)
    assert "nanobot plugins enable guest" in found.remedy
    assert not host.hooks.choose_approval
    with pytest.raises(PluginError, match="agreed"):
        await host.activate("guest")
    agree(home, [host.catalogue.selections["guest"].plugin])
    host = make_host()
    await host.start()
    assert report(host, "guest").state == "active"
    assert host.hooks.choose_approval


@pytest.mark.parametrize("way", ["reload", "reconfigure"])
async def test_a_running_plugin_goes_on_with_what_was_agreed_to(
    site: Path, make_host: MakeHost, home: Path, way: str
) -> None:
    upgrade(site, JUDGE, is_described=True, hooks={"authorize_tool_call": 1})
    host = make_host()
    await host.start()
    more: JsonObject = {"authorize_tool_call": 1, "choose_approval": 1}
    upgrade(site, JUDGE + OWNER, is_described=True, hooks=more)

    if way == "reload":
        with pytest.raises(PluginError, match="agreed"):
            await host.changes.reload("guest")
    else:
        change = await reconfigured(host, home)
        assert NEWS in change.failed["guest"]

    assert (await asked(host))[0] == "as before"
    assert not host.hooks.choose_approval
    assert (report(host, "guest").state, NEWS in report(host, "guest").reason) == ("degraded", True)
    described = Manifest(id="guest", hooks={"authorize_tool_call": 1, "choose_approval": 1})
    agree(
        home,
        [InstalledPlugin(id="guest", target="", distribution="", version="", manifest=described)],
    )
    await host.changes.reload("guest")
    assert report(host, "guest").state == "active"
    assert host.hooks.choose_approval


async def test_a_judge_that_waits_for_consent_refuses_what_it_judged_before(
    site: Path, make_host: MakeHost
) -> None:
    upgrade(site, JUDGE, is_described=True, hooks={"authorize_tool_call": 1})
    host = make_host()
    await host.start()
    await host.stop()
    door = "@on.admit_message\ndef admit(event): return None\n"
    more: JsonObject = {"authorize_tool_call": 1, "admit_message": 1}
    upgrade(site, JUDGE + door, is_described=True, hooks=more)

    host = make_host()
    await host.start()
    call, message = await asked(host)

    assert "decides who is admitted" in call
    assert message == ""


@pytest.mark.parametrize(("code", "hook"), [(EAR, "before_turn"), (JUDGE, "authorize_tool_call")])
async def test_of_a_plugin_that_is_gone_what_it_judged_is_remembered(
    site: Path, make_host: MakeHost, code: str, hook: str
) -> None:
    upgrade(site, code, is_described=True, hooks={hook: 1})
    host = make_host({"plugins.enabled": ["guest"]})
    await host.start()
    await host.stop()
    for info in site.glob("acme_guest*.dist-info"):
        info.rename(site / "gone")

    host = make_host({"plugins.enabled": ["guest"]})
    await host.start()
    call, message = await asked(host)

    assert bool(call) == (hook == "authorize_tool_call")
    assert message == ""
    assert report(host, "guest").state == "not-installed"
