"""``nanobot doctor``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from tests.distributions import (
    manifest_of,
    tool_declaration,
    write_distribution,
    write_plugin,
)
from tests.integration.cli.conftest import CONFIG, CommandLine
from tests.strangers.broken import AT_START, HEAD, Broken

Install = Callable[..., None]
LISTENS = "@on.before_turn\ndef listen(event): ...\n"


@pytest.fixture
def install(nanobot: CommandLine) -> Install:
    """Install and enable one more plugin: its id, its code, and fields of its manifest."""
    enabled = ["scripted", "extras"]

    def add(plugin_id: str, code: str, **manifest: object) -> None:
        described = manifest_of(plugin_id, **manifest)
        write_plugin(nanobot.own_site(), plugin_id, code=HEAD + code, manifest=described)
        enabled.append(plugin_id)
        nanobot.configure(CONFIG.replace("scripted, extras", ", ".join(enabled)))

    return add


def _findings(nanobot: CommandLine, *args: str, code: int = 0) -> dict[str, dict[str, str]]:
    found = json.loads(nanobot("doctor", "--json", *args, code=code).stdout)
    return {item["name"]: item for item in found}


def test_the_doctor_bounds_contains_and_reports_the_checks_of_plugins(nanobot: CommandLine) -> None:
    found = _findings(nanobot, code=1)

    assert found["patience"]["message"] == "the check did not end within 2 seconds"
    assert found["nerves"]["message"] == "the check failed with RuntimeError: no nerves left"
    assert (found["health"]["status"], found["health"]["source"]) == ("ok", "scripted")
    assert found["model"]["message"] == "scripted-1 by scripted"


def test_the_doctor_names_who_else_installs_the_command(bare: CommandLine) -> None:
    bare.configure("plugins: {policy: listed}\n")
    assert "command" not in _findings(bare, code=1)
    scripts = "[console_scripts]\nnanobot = nanobot.cli.commands:app\n"
    write_distribution(bare.own_site(), "nanobot-ai", entry_points=scripts)

    found = _findings(bare, code=1)["command"]

    assert found["message"] == "the command 'nanobot' is also installed by nanobot-ai"
    assert "pip uninstall nanobot-ai" in found["remedy"]


def test_the_doctor_repairs_a_configuration_that_others_can_read(bare: CommandLine) -> None:
    file = bare.configure("plugins: {policy: listed}\nproviders: {x: {api_key: abcd1234}}\n")
    file.chmod(0o644)

    assert f"chmod 600 {file}" in _findings(bare, code=1)["secrets"]["remedy"]
    assert _findings(bare, "--fix", code=1)["secrets"]["status"] == "ok"
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_doctor_lists_every_problem_of_a_configuration(bare: CommandLine) -> None:
    bare.configure("agents: {defaults: {max_tokens: no, temperature: hot}}")
    found = json.loads(bare("doctor", "--json", code=1).stdout)

    configuration = [item["status"] for item in found if item["name"] == "configuration"]
    assert configuration == ["error", "error"]


def test_the_doctor_agrees_with_the_check_of_the_configuration(bare: CommandLine) -> None:
    bare.configure("provider: {openai: {api_key: abcd1234}}\nplugins: {policy: listed}\n")

    told = "provider: no installed plugin reads this section; did you mean 'providers'?"
    assert told in bare("config", "check", code=1).stderr
    assert told in bare("doctor", code=1).stdout
    assert told in bare("agent", "-m", "hi", code=1).stderr


def test_a_key_that_cannot_be_checked_for_nothing_is_reported_as_such(nanobot: CommandLine) -> None:
    found = _findings(nanobot, "--online", code=1)["provider scripted"]

    assert (found["status"], found["message"].split(", so ")[1]) == (
        "warning",
        "its key cannot be checked without a paid call",
    )


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ("agents: {defaults: {provider: opnai}}\n", "expected a provider of an enabled plugin"),
        (
            "owner: [ada]\nchannels: {hook: {allow_from: [bob]}}\n",
            "'ada' is the owner, and no channel lists them under allow_from",
        ),
    ],
)
def test_the_check_reports_what_would_fail_later(
    bare: CommandLine, configuration: str, told: str
) -> None:
    bare.configure(configuration)

    shown = bare("config", "check", "--json", code=1 if "provider" in configuration else 0).stdout
    assert told in shown


def test_the_doctor_reports_a_home_that_cannot_be_written(bare: CommandLine) -> None:
    bare.configure("plugins: {policy: listed}\n")
    bare.home.chmod(0o500)
    try:
        if os.access(bare.home, os.W_OK):
            pytest.skip("this account may write everywhere")
        assert f"cannot write in {bare.home}" in bare("doctor", code=1).stdout
        told = bare("config", "set", "owner", "[ada]", code=1).stderr
    finally:
        bare.home.chmod(0o700)
    assert "Permission denied" in told
    assert "nanobot itself failed" not in told


def test_the_doctor_shows_remedies_to_people(nanobot: CommandLine) -> None:
    (nanobot.home / "config.yaml").unlink()
    shown = nanobot("doctor", code=1).stdout

    assert "warning configuration: no configuration file exists" in shown
    assert "→ run nanobot onboard" in shown


@pytest.mark.parametrize("kind", ["import error", "start raises", "misspelt hook"])
def test_the_doctor_tells_why_a_plugin_does_not_start(
    nanobot: CommandLine, install: Install, kind: str
) -> None:
    broken: Broken = AT_START[kind]
    hooks = {"before_turn": 1, "start": 1}
    install("broken", broken.code, hooks=hooks, declarations=[BROKEN_CHECK])
    found = json.loads(nanobot("doctor", "--json", code=1).stdout)

    (told,) = [item for item in found if item["source"] == "broken"]
    assert (told["name"], told["status"]) == ("plugin", "error")
    assert told["message"].startswith("failed: ")
    assert broken.reason in told["message"]
    assert told["remedy"]


BROKEN_CHECK = {
    "kind": "checks",
    "name": "mast",
    "summary": "",
    "detail": {"name": "mast", "run": "acme_broken.plugin:check"},
}


def test_the_doctor_tells_of_a_check_whose_plugin_nothing_else_starts(
    nanobot: CommandLine, install: Install
) -> None:
    install("broken", "1 / 0", declarations=[BROKEN_CHECK])

    mast = _findings(nanobot, code=1)["mast"]
    assert (mast["source"], mast["status"]) == ("broken", "error")
    assert "ZeroDivisionError" in mast["message"]


def test_the_doctor_goes_on_where_a_required_plugin_cannot_run(
    nanobot: CommandLine, install: Install
) -> None:
    install("broken", "1 / 0", hooks={"before_turn": 1})
    file = nanobot.home / "config.yaml"
    nanobot.configure(file.read_text().replace("policy:", "required: [broken], policy:"))
    found = _findings(nanobot, code=1)

    assert "'broken'" in found["plugins.required"]["message"]
    assert found["plugin"]["source"] == "broken"
    assert found["health"]["status"] == "ok"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("return Health(ok=True)", "ok", "healthy"),
        ("return Health(ok=False, message='the mast has fallen')", "error", "the mast has fallen"),
        ("raise OSError('no mast')", "error", "OSError: no mast"),
        ("await asyncio.Event().wait()", "warning", "did not end within 2 seconds"),
    ],
)
def test_the_doctor_asks_plugins_how_they_are(
    nanobot: CommandLine, install: Install, body: str, status: str, message: str
) -> None:
    code = f"{LISTENS}@on.check_health\nasync def health(ctx):\n    {body}\n"
    install("mast", code, hooks={"before_turn": 1, "check_health": 1})

    health = _findings(nanobot, code=1)["check_health"]
    assert (health["source"], health["status"]) == ("mast", status)
    assert message in health["message"]
    shown = nanobot("doctor", code=1).stdout
    assert any(line.split(maxsplit=1)[1].startswith("mast: ") for line in shown.splitlines())
    assert "check_health: " not in shown


def test_the_doctor_tells_how_to_settle_a_name_that_two_plugins_claim(
    nanobot: CommandLine, install: Install
) -> None:
    for plugin_id in ("east", "west"):
        code = (
            "@tool\ndef gauge(place: str) -> str:\n    'Read it.'\n    return place\n"
            "@on.contribute_tools\ndef give(ctx): return [gauge]\n"
        )
        declarations = [tool_declaration("gauge")]
        hooks = {"contribute_tools": 1}
        install(plugin_id, code, hooks=hooks, declarations=declarations)

    clash = _findings(nanobot, code=1)["tools"]
    assert clash["message"].startswith("east and west claim 'gauge'")
    assert clash["remedy"] == "set tools.aliases.gauge: east/gauge"


def test_the_doctor_names_jobs_that_no_plugin_runs(bare: CommandLine) -> None:
    for plugin_id, described in (
        ("kettle", {"hooks": {"contribute_jobs": 1, "contribute_triggers": 1}}),
        ("watch", {"facts": {"reads": ["contribute_triggers"]}}),
    ):
        write_plugin(bare.own_site(), plugin_id, manifest=manifest_of(plugin_id, **described))
    bare.configure("plugins: {policy: listed, enabled: [kettle, watch]}")
    found = _findings(bare, code=1)

    assert found["jobs"]["message"] == "no enabled plugin runs the jobs of kettle"
    assert "nanobot-cron" in found["jobs"]["remedy"]
    assert "triggers" not in found


def test_the_doctor_names_a_task_that_outlives_its_plugin(
    nanobot: CommandLine, install: Install
) -> None:
    code = (
        f"{LISTENS}@on.start\nasync def begin(ctx):\n"
        "    global kept\n"
        "    kept = asyncio.create_task(asyncio.Event().wait(), name='stray')\n"
    )
    install("mast", code, hooks={"before_turn": 1, "start": 1})

    assert "task 'stray' still runs" in _findings(nanobot, code=1)["tasks"]["message"]
