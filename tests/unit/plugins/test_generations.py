"""A plugin built for other hooks is refused before its import; deprecated hooks are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nanobot_core import PluginError, __version__, deprecation
from nanobot_core.deprecation import Deprecation
from nanobot_core.hooks.caller import declared_hooks
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import report

LISTEN = "from nanobot_core import on\n@on.before_turn\ndef listen(event): ...\n"


@pytest.mark.promise(22)
@pytest.mark.anyio
async def test_a_hook_of_another_generation_keeps_a_plugin_from_being_imported(
    site: Path, make_host: MakeHost
) -> None:
    manifest = manifest_of("later", hooks={"before_turn": 99, "after_turn": 1, "on_error": 7})
    write_plugin(site, "later", code="raise SystemExit('imported')", manifest=manifest)
    host = make_host()

    await host.start()

    assert report(host, "later").state == "incompatible"
    assert "acme_later" not in sys.modules
    with pytest.raises(PluginError) as caught:
        await host.activate("later")
    assert str(caught.value) == (
        "plugin 'later': it is built for a nanobot-core with generation 99 of hook 'before_turn' "
        "and this one has generation 1, generation 7 of hook 'on_error' and this one has "
        f"generation 1; install a release of acme-later for nanobot-core {__version__}"
    )


@pytest.mark.promise(22)
@pytest.mark.anyio
async def test_one_message_names_all_that_does_not_fit(site: Path, make_host: MakeHost) -> None:
    manifest = manifest_of("old", hooks={"before_turn": 99})
    write_plugin(site, "old", requires=["nanobot-core>=7"], manifest=manifest)

    found = report(make_host(), "old").reason

    assert "nanobot-core>=7" in found
    assert "generation 99" in found


@pytest.mark.anyio
async def test_a_plugin_for_the_raised_generation_runs(
    site: Path, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_hooks()["before_turn"], "revision", 2)
    write_plugin(site, "new", code=LISTEN, manifest=manifest_of("new", hooks={"before_turn": 2}))
    write_plugin(site, "old", code=LISTEN, manifest=manifest_of("old", hooks={"before_turn": 1}))
    host = make_host()

    await host.start()

    assert report(host, "new").state == "active"
    assert report(host, "old").state == "incompatible"


@pytest.mark.promise(24)
@pytest.mark.anyio
async def test_a_plugin_with_a_deprecated_hook_is_warned_about_once(
    site: Path, make_host: MakeHost, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Deprecation(
        name="on.before_turn",
        since="0.3",
        removed_in="0.5",
        removed_on="2031-05-01",
        replacement="on.after_turn",
    )
    monkeypatch.setattr(deprecation, "DEPRECATED", (entry,))
    for plugin_id in ("elder", "senior"):
        manifest = manifest_of(plugin_id, hooks={"before_turn": 1})
        write_plugin(site, plugin_id, code=LISTEN, manifest=manifest)

    for _ in range(2):
        await make_host().start()

    assert [text.strip() for text in warnings if "deprecated" in text] == [
        f"'{plugin_id}' uses on.before_turn, which is deprecated since 0.3 and which 0.5 removes, "
        "not before 2031-05-01; use on.after_turn"
        for plugin_id in ("elder", "senior")
    ]


IMPORTS = """
import nanobot_core.deprecation as table
def entry(name):
    return table.Deprecation(name=f"nanobot_core.{name}", since="0.3", removed_in="0.5",
                             removed_on="2031-05-01", replacement="nanobot_core.as_label")
table.DEPRECATED = (entry("shorten"), entry("clip"))
import acme_one.a, acme_one.b, acme_two
try:
    from nanobot_core import clip
except ImportError as error:
    print(error)
"""


@pytest.mark.promise(24)
def test_a_deprecated_name_names_each_package_that_imports_it_once(site: Path) -> None:
    for name in ("acme_one/a", "acme_one/b", "acme_two"):
        file = site / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("from nanobot_core import shorten\nassert shorten('abc', 9) == 'abc'\n")

    child = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(1, {str(site)!r})\n{IMPORTS}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    warned = [line for line in child.stderr.splitlines() if "deprecated since 0.3" in line]
    assert [line.partition("'")[2].partition("'")[0] for line in warned] == ["acme_one", "acme_two"]
    assert child.stdout.strip() == (
        "nanobot_core.clip was removed in 0.5; use nanobot_core.as_label"
    )
