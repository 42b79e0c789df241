"""What every installed plugin owes, collected by ``pytest --nanobot-plugin NAME``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nanobot_core.messages import JsonValue
from nanobot_core.plugins.examine import examine_plugin, settings_model
from nanobot_core.plugins.index import InstalledPlugin, scan_installed
from nanobot_core.plugins.loader import load_object
from nanobot_core.plugins.manifest import Declaration, manifest_to_json, tool_definition
from nanobot_core.testing.tool_schema import definition_findings
from nanobot_core.tools.casting import cast_params
from nanobot_core.tools.validation import validate_params

_IMPORT_LIMIT_S = 30.0
_DOTTED_KEYS = ("factory", "handler", "app", "run", "settings")
_WRONG: tuple[JsonValue, ...] = (None, True, -1, 1.5, "\0", [], [[]], {}, {"a": [1]})
_PRINT_LOADED = """\
import importlib, json, sys
from nanobot_core import on
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat the tests for each named plugin, and for each of its tools."""
    plugins = _named_plugins(metafunc.config.getoption("nanobot_plugin"))
    if "tool" in metafunc.fixturenames:
        tools = [
            pytest.param(tool, id=f"{plugin.id}-{tool.name}")
            for plugin in plugins
            for tool in (plugin.manifest.of_kind("tools") if plugin.manifest else ())
        ]
        metafunc.parametrize("tool", tools)
    elif "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", [pytest.param(item, id=item.id) for item in plugins])


class TestPlugin:
    """The plugin as a whole."""

    def test_it_is_described_and_fits_this_environment(self, plugin: InstalledPlugin) -> None:
        assert plugin.problem == ""
        assert plugin.manifest is not None, "no manifest; run nanobot plugins build"

    def test_its_manifest_tells_what_its_code_does(self, plugin: InstalledPlugin) -> None:
        assert plugin.manifest is not None

        derived = json.loads(json.dumps(manifest_to_json(examine_plugin(plugin.id))))

        assert json.loads(json.dumps(manifest_to_json(plugin.manifest))) == derived

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

        own = {module.partition(".")[0], "nanobot_core"}
        assert sorted(loaded - own - sys.stdlib_module_names) == []

    def test_its_dotted_names_lead_to_something(self, plugin: InstalledPlugin) -> None:
        assert plugin.manifest is not None
        for declaration in plugin.manifest.declarations:
            for dotted in _dotted_names(declaration):
                assert load_object(plugin.id, dotted) is not None

    def test_its_settings_have_defaults_and_refuse_unknown_keys(
        self, plugin: InstalledPlugin
    ) -> None:
        assert plugin.manifest is not None
        named = [section.model for section in plugin.manifest.settings]
        named += [str(item.detail["settings"]) for item in plugin.manifest.of_kind("providers")]
        for dotted in named:
            model = settings_model(plugin.id, dotted)
            model()
            with pytest.raises(ValueError, match="no_such_key"):
                model.model_validate({"no_such_key": 1})


class TestTool:
    """Each tool that the plugin declares, as far as it can be tested without a call."""

    def test_model_services_accept_its_definition(self, tool: Declaration) -> None:
        assert definition_findings(tool_definition(tool)) == []

    def test_arguments_of_any_type_are_cast_and_validated(self, tool: Declaration) -> None:
        schema = tool_definition(tool).parameters
        properties = schema.get("properties")
        for name in properties if isinstance(properties, dict) else ():
            for wrong in _WRONG:
                cast = cast_params(schema, {name: wrong})
                assert cast_params(schema, cast) == cast
                assert all(isinstance(finding, str) for finding in validate_params(schema, cast))


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


def _dotted_names(declaration: Declaration) -> Iterator[str]:
    for key in _DOTTED_KEYS:
        value = declaration.detail.get(key)
        if isinstance(value, str) and ":" in value:
            yield value
