"""Writes what ``pytest --nanobot-plugin`` has found, as files for programs."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from nanobot_core._version import __version__

SCHEMA_VERSION = 1
PROPERTY = "nanobot_conformance"
"""Name of the property of a test that says which plugin and kind it is about."""


class ConformanceReport:
    """Writes two files for each plugin at the end of a run.

    ``ID.json`` has the result of each kind of contribution, with what is wrong. ``ID.badge.json``
    is the same in one word, for services that draw badges from an endpoint.

    A pytest plugin. With several processes, only the one that collects the results writes.

    Args:
        folder: is created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plugins: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a test that is about a plugin."""
        found = dict(report.user_properties).get(PROPERTY)
        if report.when != "call" or not isinstance(found, dict):
            return
        facts = self._plugins.setdefault(found["plugin"], {**found, "kinds": {}})
        kind: dict[str, object] = {"result": report.outcome}
        if found["findings"]:
            kind["findings"] = found["findings"]
        facts["kinds"][found["kind"]] = kind

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files."""
        if hasattr(session.config, "workerinput"):
            return
        for plugin_id, facts in self._plugins.items():
            is_passed = all(each["result"] != "failed" for each in facts["kinds"].values())
            data = {
                "schema_version": SCHEMA_VERSION,
                "plugin": plugin_id,
                "distribution": facts["distribution"],
                "version": facts["version"],
                "core": __version__,
                "python": platform.python_version(),
                "result": "passed" if is_passed else "failed",
                "kinds": facts["kinds"],
            }
            badge = {
                "schemaVersion": 1,
                "label": f"nanobot {__version__}",
                "message": "conforms" if is_passed else "does not conform",
                "color": "brightgreen" if is_passed else "red",
            }
            self._write(f"{plugin_id}.json", data)
            self._write(f"{plugin_id}.badge.json", badge)

    def _write(self, name: str, data: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, indent=2, ensure_ascii=False)
        (self._folder / name).write_text(f"{text}\n", "utf-8")
