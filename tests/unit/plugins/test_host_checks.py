"""Settings and code are checked before a plugin is started, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot_core import (
    PluginRejected,
)
from nanobot_core.plugins.index import MANIFEST_FILE
from tests.distributions import manifest_of, write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    EAR,
    HEAD,
    listening,
    log_of,
    report,
    write_picky,
)

pytestmark = pytest.mark.anyio


async def test_settings_are_checked_before_start_and_handed_over(
    site: Path, make_host: MakeHost
) -> None:
    write_picky(site)
    host = make_host({"picky": {"sides": 20}})

    await host.start()

    assert log_of("picky") == ["20"]
    assert report(host, "picky").state == "active"


@pytest.mark.promise(16)
async def test_wrong_settings_of_one_plugin_spare_the_rest(
    site: Path, make_host: MakeHost, tmp_path: Path
) -> None:
    write_picky(site)
    write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("logging: {file: false}\npicky:\n  sides: many\n")
    host = make_host()

    await host.start()

    assert report(host, "picky").state == "settings-error"
    assert f"{home / 'config.yaml'}:3: picky.sides" in report(host, "picky").reason
    assert report(host, "ear").state == "active"


async def test_code_that_does_more_than_its_manifest_is_refused(
    site: Path, make_host: MakeHost
) -> None:
    write_plugin(site, "ear", code=EAR, manifest=listening("ear"))
    host = make_host()

    await host.start()

    assert (
        report(host, "ear").reason == "it implements 'start', which its manifest does not declare"
    )
    assert report(host, "ear").remedy == "run nanobot plugins build"


async def test_a_contribution_that_is_not_declared_is_refused(
    site: Path, make_host: MakeHost
) -> None:
    code = HEAD + "@on.contribute_channels\ndef channels(ctx): return []\n"
    write_plugin(site, "radio", code=code, manifest=manifest_of("radio"))

    with pytest.raises(PluginRejected, match="'contribute_channels', which its manifest"):
        await make_host().activate("radio")


async def test_a_manifest_that_went_stale_under_the_host_is_told(
    site: Path, make_host: MakeHost
) -> None:
    package = write_plugin(site, "ear", code=EAR, manifest=listening("ear", "start", "stop"))
    (site / "acme_ear-1.0.dist-info" / "direct_url.json").write_text(
        '{"dir_info": {"editable": true}}'
    )
    (package / MANIFEST_FILE).write_text(json.dumps(manifest_of("ear")))

    with pytest.raises(PluginRejected, match="which its manifest does not declare"):
        await make_host().activate("ear")


async def test_slips_in_the_configuration_are_told(
    make_host: MakeHost, warnings: list[str]
) -> None:
    host = make_host(
        {
            "plugins.enabled": ["telegram"],
            "plugins.order": {"gather_contxt": ["a"]},
            "plugins.limits": {"a.wrap_model_cal": 3, "files.before_turn": 3},
        }
    )

    await host.start()

    assert [told.strip() for told in warnings] == [
        (
            "plugins.order names hook 'gather_contxt', which does not exist; "
            "did you mean 'gather_context'?"
        ),
        (
            "plugins.limits names hook 'wrap_model_cal', which does not exist; "
            "did you mean 'wrap_model_call'?"
        ),
        (
            "plugin 'telegram' does not run: the configuration names it and it is not installed; "
            "every channel message and every tool call is refused until it runs, because it may "
            "judge them; run nanobot plugins add nanobot-telegram; to do without it, "
            "run nanobot plugins disable telegram"
        ),
    ]
    assert report(host, "telegram").state == "not-installed"
    assert report(host, "telegram").remedy == "run nanobot plugins add nanobot-telegram"
