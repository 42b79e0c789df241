"""What every installed plugin must do, collected by ``pytest --nanobot-plugin NAME``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot_core.config.environment import process_environment
from nanobot_core.plugins.examine import examine_plugin, settings_model
from nanobot_core.plugins.index import InstalledPlugin, scan_installed
from nanobot_core.plugins.loader import load_object
from nanobot_core.plugins.manifest import Declaration, Manifest, manifest_to_json
from nanobot_core.testing.installed import KINDS, MARK

_IMPORT_LIMIT_S = 30.0
_BEHAVIOUR_LIMIT_S = 150.0
_DOTTED_KEYS = ("factory", "handler", "app", "run", "settings")
_PRINT_LOADED = """\
import importlib, json, sys
import pydantic, nanobot_core.tools
from nanobot_core import on
@nanobot_core.tools.tool
def sample(text: str) -> str:
    "A tool, as an entry module may have one."
    return text
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests for each named plugin, and for each kind of contribution it has."""
    plugins = _named_plugins(metafunc.config.getoption("nanobot_plugin"))
    if "kind" in metafunc.fixturenames:
        behaviours = [
            pytest.param(plugin, kind, id=f"{plugin.id}-{kind}")
            for plugin in plugins
            for kind in KINDS
            if (_manifest(plugin).hooks if kind == "hooks" else _manifest(plugin).of_kind(kind))
        ]
        metafunc.parametrize(("plugin", "kind"), behaviours)
    elif "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", [pytest.param(item, id=item.id) for item in plugins])


class TestPlugin:
    """An installed plugin."""

    def test_it_fits_this_environment(self, plugin: InstalledPlugin) -> None:
        assert plugin.problem == ""

    def test_its_manifest_says_what_its_code_does(self, plugin: InstalledPlugin) -> None:
        if plugin.manifest is None:
            pytest.skip("the plugin has no manifest, so nothing can be out of date")
        derived = json.loads(json.dumps(manifest_to_json(examine_plugin(plugin.id))))

        assert json.loads(json.dumps(manifest_to_json(plugin.manifest))) == derived, (
            f"the manifest is out of date; run nanobot plugins build {plugin.id}"
        )

    def test_its_entry_module_loads_only_the_standard_library_and_the_core(
        self, plugin: InstalledPlugin
    ) -> None:
        module = plugin.target.partition(":")[0]
        child = subprocess.run(
            [sys.executable, "-c", _PRINT_LOADED, module],
            capture_output=True,
            text=True,
            timeout=_IMPORT_LIMIT_S,
            check=False,
        )
        assert child.returncode == 0, child.stderr

        loaded = set(json.loads(child.stdout.strip().rpartition("\n")[2]))

        own = {module.partition(".")[0], "nanobot_core", "pydantic", "tzdata"}
        others = sorted(
            name
            for name in loaded - own - sys.stdlib_module_names
            if not name.startswith("_sysconfigdata")  # zoneinfo asks where its data is
        )
        assert not others, (
            f"importing {module} loads {', '.join(others)}, which every command would wait for; "
            "import them where they are used, or contribute a LazyTool or a factory"
        )

    @pytest.mark.timeout(_BEHAVIOUR_LIMIT_S * 2)
    def test_it_behaves(self, plugin: InstalledPlugin, kind: str, tmp_path: Path) -> None:
        findings, skipped = _behaviour(plugin, kind, tmp_path)
        if findings:
            pytest.fail("\n".join(dict.fromkeys(findings)), pytrace=False)
        if skipped:
            pytest.skip(skipped)

    def test_its_dotted_names_lead_to_something(self, plugin: InstalledPlugin) -> None:
        for declaration in _manifest(plugin).declarations:
            for dotted in _dotted_names(declaration):
                assert load_object(plugin.id, dotted) is not None

    def test_its_settings_have_defaults_and_refuse_unknown_keys(
        self, plugin: InstalledPlugin
    ) -> None:
        manifest = _manifest(plugin)
        named = [section.model for section in manifest.settings]
        named += [str(item.detail["settings"]) for item in manifest.of_kind("providers")]
        for dotted in named:
            model = settings_model(plugin.id, dotted)
            model()
            with pytest.raises(ValueError, match="no_such_key"):
                model.model_validate({"no_such_key": 1})


def _behaviour(plugin: InstalledPlugin, kind: str, folder: Path) -> tuple[list[str], str]:
    """Return what is wrong with the plugin's contributions of one kind, and why all was skipped."""
    home = folder / "home"
    home.mkdir()
    # What threads and programs that a plugin leaves behind print must not keep this one waiting.
    with (folder / "answers").open("w+b") as output, (folder / "errors").open("w+b") as errors:
        paths = os.pathsep.join(sys.path)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "nanobot_core.testing.installed", plugin.id, kind],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=home,
            env={**process_environment(), "PYTHONPATH": paths, "HOME": str(home)},
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


def _named_plugins(names: list[str]) -> list[InstalledPlugin]:
    if not names:
        return []
    installed = {plugin.id: plugin for plugin in scan_installed()}
    missing = [name for name in names if name not in installed]
    if missing:
        msg = (
            f"--nanobot-plugin: not installed: {', '.join(missing)}; "
            f"installed: {', '.join(installed) or 'none'}"
        )
        raise pytest.UsageError(msg)
    return [installed[name] for name in names]


@functools.cache
def _described(plugin_id: str) -> Manifest:
    return examine_plugin(plugin_id)


def _manifest(plugin: InstalledPlugin) -> Manifest:
    """Return the plugin's manifest; one without is described now."""
    return plugin.manifest or _described(plugin.id)


def _dotted_names(declaration: Declaration) -> Iterator[str]:
    for key in _DOTTED_KEYS:
        value = declaration.detail.get(key)
        if isinstance(value, str) and ":" in value:
            yield value
