"""What every installed plugin must do, collected by ``pytest --nanobot-plugin NAME``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nanobot_core.errors import PluginError
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.testing.description import description_findings, find_plugin, import_environment
from nanobot_core.testing.installed import KINDS, MARK
from nanobot_core.testing.report import PROPERTY

_BEHAVIOUR_LIMIT_S = 150.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the test for each named plugin: its description, and each kind of contribution."""
    cases = [
        pytest.param(plugin, kind, id=f"{plugin.id}-{kind}")
        for plugin in map(find_plugin, metafunc.config.getoption("nanobot_plugin"))
        for kind in ("description", *_kinds(plugin))
    ]
    metafunc.parametrize(("plugin", "kind"), cases)


@pytest.mark.timeout(_BEHAVIOUR_LIMIT_S * 2)
def test_plugin(
    plugin: InstalledPlugin,
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Fails with all findings about one kind."""
    if kind == "description":
        findings = [str(each) for each in description_findings(plugin.file or plugin.id)]
        skipped = ""
    else:
        findings, skipped = _behaviour(plugin, kind, tmp_path)
    if request.config.getoption("nanobot_report"):
        facts = {"plugin": plugin.id, "kind": kind, "findings": list(dict.fromkeys(findings))}
        facts |= {"distribution": plugin.distribution, "version": plugin.version}
        request.node.user_properties.append((PROPERTY, facts))
    if findings:
        pytest.fail("\n".join(dict.fromkeys(findings)), pytrace=False)
    if skipped:
        pytest.skip(skipped)


def _behaviour(plugin: InstalledPlugin, kind: str, folder: Path) -> tuple[list[str], str]:
    """Return what is wrong with the plugin's contributions of one kind, and why all was skipped."""
    home = folder / "home"
    home.mkdir()
    target = plugin.file or plugin.id
    # What threads and programs that a plugin leaves behind print must not keep this one waiting.
    with (folder / "answers").open("w+b") as output, (folder / "errors").open("w+b") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "nanobot_core.testing.installed", target, kind],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=home,
            env=import_environment(home),
        )
        try:
            code = child.wait(_BEHAVIOUR_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
            child.kill()
            child.wait()
        output.seek(0)
        errors.seek(0)
        answers = [
            line.removeprefix(MARK)
            for line in output.read().decode().splitlines()
            if line.startswith(MARK)
        ]
        trouble = errors.read().decode(errors="replace")[-2000:]
    facts = [json.loads(answer) for answer in answers]
    findings = [fact["finding"] for fact in facts if "finding" in fact]
    if not any("done" in fact for fact in facts):
        during = next((fact["trying"] for fact in reversed(facts) if "trying" in fact), "starting")
        how = f"exited with code {code}" if code is not None else "blocks without an end"
        findings.append(f"the process {how} during {during}\n{trouble}")
    skipped = [fact["skipped"] for fact in facts if "skipped" in fact]
    is_skipped = len(skipped) == sum("trying" in fact for fact in facts)
    return findings, "; ".join(dict.fromkeys(skipped)) if is_skipped else ""


def _kinds(plugin: InstalledPlugin) -> list[str]:
    """Return the kinds of contributions whose behaviour is tested."""
    try:
        manifest = plugin.manifest or examine_plugin(plugin.id, plugin.file)
    except PluginError:
        return []  # The test of the description fails with the reason.
    given = {item.kind for item in manifest.declarations} | ({"hooks"} if manifest.hooks else set())
    return [kind for kind in KINDS if kind in given]
