"""The index of our plugins says what their manifests say."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def test_the_index_is_that_of_the_manifests(repository: Path) -> None:
    spec = spec_from_file_location("published", repository / "docs/_ext/published_plugins.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = json.loads(module.render_index())["plugins"]
    committed = {each["name"]: each for each in json.loads(module.FILE.read_bytes())["plugins"]}

    # A copy of the repository without one plugin is tested, too.
    stale = [each["name"] for each in found if each != committed.get(each["name"])]
    assert stale == [], "run python docs/_ext/published_plugins.py"
    assert len(found) == len(list(repository.glob("plugins/*/pyproject.toml")))
