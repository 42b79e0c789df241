from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core.testing import Finding
from nanobot_devkit.findings import check_plugin
from nanobot_devkit.location import locate_plugin
from nanobot_devkit.scaffold import Kind

Edit = Callable[[Path], None]


@pytest.fixture
def findings(
    write: Callable[[str, Kind], Path], install: Callable[..., Path]
) -> Callable[..., list[Finding]]:
    """Findings of a tool package after a change: ``findings("plugin.py", old, new)``."""

    def findings(file: str, old: str, new: str, **options: str) -> list[Finding]:
        project = write("faulty", "tool")
        package = install(project, **options)
        path = project / file if (project / file).exists() else package / file
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")
        return check_plugin(locate_plugin("faulty"))

    return findings


def test_an_upper_bound_of_the_core_is_wanted(findings: Callable[..., list[Finding]]) -> None:
    (found,) = findings("README.md", "", "", requires="nanobot-core>=0.1")

    assert found.rule == "requirement"
    assert "no upper bound" in found.message


def test_a_package_that_does_not_name_the_core_is_found(
    findings: Callable[..., list[Finding]],
) -> None:
    (found,) = findings("README.md", "", "", requires="pydantic")

    assert found == Finding(
        "requirement", "the package does not require nanobot-core", found.remedy
    )


def test_a_missing_section_of_the_readme_is_named(findings: Callable[..., list[Finding]]) -> None:
    (found,) = findings("README.md", "## Security", "## Safety")

    assert found.message == "the README has no section 'Security'"
    assert found.remedy == "add '## Security' to it"


def test_what_the_entry_module_loads_is_named(findings: Callable[..., list[Finding]]) -> None:
    found = findings(
        "plugin.py",
        "from nanobot_core import LazyTool",
        "import jsonschema  # noqa: F401\nfrom nanobot_core import LazyTool",
    )

    assert [each.rule for each in found] == ["entry-module"]
    assert "jsonschema" in found[0].message


def test_the_code_does_not_see_the_users_secrets(
    findings: Callable[..., list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")

    assert not findings(
        "plugin.py",
        "from nanobot_core import LazyTool",
        "import os\n\nassert 'SOME_API_KEY' not in os.environ\nfrom nanobot_core import LazyTool",
    )


def test_code_that_does_not_import_is_one_finding(findings: Callable[..., list[Finding]]) -> None:
    (found,) = findings("plugin.py", "from nanobot_core", "from nanobot_cor")

    assert found.rule == "code"
    assert "nanobot_cor" in found.message


def test_a_hook_that_does_not_exist_is_found_with_the_nearest_name(
    findings: Callable[..., list[Finding]],
) -> None:
    (found,) = findings(
        "plugin.py",
        "@on.contribute_settings\n",
        "from nanobot_core import hookimpl\n@hookimpl\n"
        "def contribute_tolls(ctx): ...\n@on.contribute_settings\n",
    )

    assert "contribute_tolls" in found.message
    assert "contribute_tools" in found.remedy


def test_a_stale_manifest_is_found(findings: Callable[..., list[Finding]]) -> None:
    (found,) = findings("tool.py", "Report on one city.", "Tell of one city.")

    assert found.rule == "manifest"
    assert found.remedy == "run nanobot plugins build faulty"


def test_settings_that_accept_anything_are_found(findings: Callable[..., list[Finding]]) -> None:
    found = findings(
        "settings.py",
        '    unit: str = "°C"',
        '    model_config = {"extra": "allow"}\n    unit: str = "°C"',
    )

    assert {each.rule for each in found} == {"settings", "manifest"}


def test_settings_with_names_of_the_owners_choice_are_no_finding(
    findings: Callable[..., list[Finding]],
) -> None:
    found = findings(
        "settings.py",
        '    unit: str = "°C"',
        '    model_config = {"extra": "allow"}\n    __pydantic_extra__: dict[str, int]\n'
        '    unit: str = "°C"',
    )

    assert {each.rule for each in found} == {"manifest"}


def test_settings_without_default_are_found(findings: Callable[..., list[Finding]]) -> None:
    (found,) = findings("settings.py", 'unit: str = "°C"', "unit: str")

    assert found.rule == "code"
    assert "default" in found.message + found.remedy


def test_a_tool_that_services_refuse_is_found(findings: Callable[..., list[Finding]]) -> None:
    found = findings("tool.py", '"Report on one city. Ask once for each city."', '""')

    assert "tool" in {each.rule for each in found}


def test_a_manifest_that_is_declared_must_be_built(
    write: Callable[[str, Kind], Path], install: Callable[..., Path]
) -> None:
    package = install(write("bare", "hook"))
    (package / "nanobot-plugin.json").unlink()

    (found,) = check_plugin(locate_plugin("bare"))

    assert found.message == "the package has no nanobot-plugin.json"


def test_a_manifest_that_is_not_declared_is_found(
    write: Callable[[str, Kind], Path], install: Callable[..., Path], tmp_path: Path
) -> None:
    install(write("mute", "hook"))
    entries = next((tmp_path / "site-mute").glob("*/entry_points.txt"))
    entries.write_text(entries.read_text("utf-8").partition("[nanobot.manifest]")[0], "utf-8")

    (found,) = check_plugin(locate_plugin("mute"))

    assert 'add to [project.entry-points."nanobot.manifest"]: mute' in found.remedy


def test_an_inner_module_of_the_core_is_named_with_its_line(
    findings: Callable[..., list[Finding]],
) -> None:
    (found,) = findings(
        "tool.py",
        "from pydantic import",
        "from nanobot_core.text import nearest  # noqa: F401\nfrom pydantic import",
    )

    assert found.rule == "name"
    assert "nanobot_faulty/tool.py:" in found.message
    assert "nanobot_core.text is no public module" in found.message


def test_an_import_that_raises_is_found_with_its_line_as_the_remedy(
    findings: Callable[..., list[Finding]],
) -> None:
    (found,) = findings("plugin.py", "from nanobot_core", "1 / 0\nfrom nanobot_core")

    assert "ZeroDivisionError" in found.message
    assert "nanobot_faulty/plugin.py:" in found.remedy
