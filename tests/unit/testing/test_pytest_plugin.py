from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nanobot_core.testing import FakeClock, FakePluginContext

pytest_plugins = ["pytester"]

PLUGIN = """
from nanobot_core import hookimpl

@hookimpl
def contribute_tools(ctx):
    from nanobot_core import LazyTool
    return [LazyTool("shout", "example_plugin.tools:shout")]
"""
TOOLS = '''
from nanobot_core.tools import tool

@tool(read_only=True)
async def shout(text: str, times: int = 1) -> str:
    """Say it louder."""
    return text.upper() * times
'''


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    """pytest loads it in every run of an environment that has nanobot-core."""
    code = (
        "import sys, pytest, nanobot_core.testing.pytest_plugin\n"
        "print(sorted(m for m in sys.modules if m.startswith('nanobot_core.')"
        " or m in ('pydantic', 'loguru', 'jsonschema', 'pluggy._x')))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert child.stdout.strip() == str(
        ["nanobot_core._version", "nanobot_core.testing", "nanobot_core.testing.pytest_plugin"]
    )


@pytest.mark.anyio
async def test_the_fixtures_belong_together(
    nanobot_clock: FakeClock, nanobot_context: FakePluginContext
) -> None:
    assert nanobot_context.clock is nanobot_clock
    assert nanobot_context.workspace.is_dir()


def test_fixtures_serve_tests_that_are_not_async(nanobot_context: FakePluginContext) -> None:
    assert nanobot_context.id == "example"


def install(folder: Path, *, plugin: str = PLUGIN, tools: str = TOOLS) -> None:
    """Put a distribution with a freshly derived manifest into `folder`."""
    package = folder / "example_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(plugin)
    (package / "tools.py").write_text(tools)
    metadata = folder / "example_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: example-plugin\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[nanobot]\nexample = example_plugin.plugin\n"
        "[nanobot.manifest]\nexample = example_plugin:nanobot-plugin.json\n"
    )


def write_manifest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from nanobot_core.plugins.examine import examine_plugin
    from nanobot_core.plugins.manifest import manifest_to_json

    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    manifest = manifest_to_json(examine_plugin("example"))
    (folder / "example_plugin" / "nanobot-plugin.json").write_text(json.dumps(manifest))


@pytest.fixture
def site(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = pytester.mkdir("site")
    install(folder)
    write_manifest(folder, monkeypatch)
    return folder


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in an environment where nanobot-core is installed, as its users do."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=50)


def test_a_good_plugin_passes_without_a_line_of_its_author(
    pytester: pytest.Pytester, site: Path
) -> None:
    result = run(pytester, "--nanobot-plugin", "example")

    result.assert_outcomes(passed=7)


def test_what_is_wrong_with_a_plugin_is_found(pytester: pytest.Pytester, site: Path) -> None:
    entry = site / "example_plugin" / "plugin.py"
    entry.write_text(f"import json_repair\n{PLUGIN}")
    tools = site / "example_plugin" / "tools.py"
    # Of another length: within one second Python tells compiled files apart by size alone.
    tools.write_text(TOOLS.replace("louder", "much softer"))

    result = run(pytester, "--nanobot-plugin", "example")

    result.assert_outcomes(passed=5, failed=2)
    result.stdout.fnmatch_lines(
        [
            "FAILED *test_its_manifest_tells_what_its_code_does*",
            "FAILED *test_its_entry_module_loads_only_the_standard_library_and_the_core*",
        ]
    )


def test_a_plugin_that_is_not_installed_is_named(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--nanobot-plugin", "absent")

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*--nanobot-plugin: not installed: absent; installed:*"])


def test_without_the_option_nothing_is_added(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")

    run(pytester).assert_outcomes(passed=1)
