"""One line of YAML chooses the memory backend, also where ours is installed."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import CONFIG, CommandLine

NOTES = """\
from nanobot_core import Consolidated, ContextBlock, MemoryBackend, MemorySpec, on


class Notes(MemoryBackend):
    def __init__(self, ctx):
        self.file = ctx.data_dir / "notes.txt"

    async def context(self, scope):
        text = self.file.read_text() if self.file.exists() else "nothing"
        return [ContextBlock(name="Notes", text=text, placement="stable", position=100)]

    async def consolidate(self, span, token_budget, *, must):
        return Consolidated()

    async def archive(self, span):
        self.file.write_text(span.messages[0].text)


@on.contribute_memory
def contribute_memory(ctx):
    yield MemorySpec(name="notes", factory=f"{__name__}:Notes")
"""


@pytest.mark.parametrize("backend", ["notes", "nanobot"])
def test_one_line_replaces_our_memory_by_another(nanobot: CommandLine, backend: str) -> None:
    pytest.importorskip("nanobot_memory", reason="nanobot-memory is not installed")
    (nanobot.home / "notes.py").write_text(NOTES)
    plugins = "[scripted, memory], local: [notes.py]"
    config = CONFIG.replace("[scripted, extras]", plugins)
    nanobot.configure(f"{config}memory: {{backend: {backend}}}\n")

    nanobot("agent", "-m", "say the garage code is 4711")
    nanobot("agent", "-m", "/new")

    folder = {"notes": "plugins/notes", "nanobot": "plugins/memory"}
    kept = {
        name
        for name, place in folder.items()
        for file in (nanobot.home / place).rglob("*.*")
        if "the garage code is 4711" in file.read_text()
    }
    assert kept == {backend}


def test_config_check_says_that_one_of_two_backends_must_be_chosen(nanobot: CommandLine) -> None:
    (nanobot.home / "notes.py").write_text(NOTES)
    (nanobot.home / "more.py").write_text(NOTES.replace('name="notes"', 'name="more"'))
    plugins = "[scripted], local: [notes.py, more.py]"
    nanobot.configure(CONFIG.replace("[scripted, extras]", plugins))

    said = nanobot("config", "check").stderr

    assert "memory.backend: expected one of more, notes" in said
