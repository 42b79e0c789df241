"""Plugins that are broken, each in its own way."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot_core.messages import JsonObject
from tests.distributions import manifest_of, tool_declaration

HEAD = "from nanobot_core import *\nimport asyncio, sys, threading\n"
GATE = "import threading\nrelease = threading.Event()\n"
"""Code of ``acme_gate``, for which an import waits until the test lets it go."""


@dataclass(frozen=True)
class Broken:
    """A plugin called ``broken``.

    Attributes:
        code: its entry module.
        reason: part of what is said of it.
        state: its state afterwards.
        manifest: its manifest, or the text of one.
        requires: its requirements.
    """

    code: str
    reason: str
    state: str = "failed"
    manifest: JsonObject | str | None = None
    requires: tuple[str, ...] = ()

    @property
    def described(self) -> JsonObject | str:
        """Its manifest; by default one that makes it be imported at start."""
        return self.manifest or manifest_of("broken", hooks={"before_turn": 1})


AT_START = {
    "import error": Broken("1 / 0", "importing 'acme_broken.plugin' raised ZeroDivisionError"),
    "missing dependency": Broken("import no_such_thing", "module 'no_such_thing' is not installed"),
    "missing requirement": Broken(
        "1 / 0", "it needs no-such-thing, which is not installed", "incompatible",
        requires=("no-such-thing>=2",),
    ),
    "another core": Broken(
        "1 / 0", "it needs nanobot-core>=99", "incompatible", requires=("nanobot-core>=99",)
    ),
    "syntax error": Broken("def f(:", "syntax error in "),
    "sys.exit at import": Broken("import sys; sys.exit(1)", "called sys.exit(1)"),
    "KeyboardInterrupt at import": Broken("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "import never ends": Broken("import acme_gate; acme_gate.release.wait()", "did not end within"),
    "wrong hook signature": Broken(
        HEAD + "@on.before_turn\ndef f(event, more): ...", "Argument(s) {'more'}"
    ),
    "misspelt hook": Broken(
        HEAD + "@hookimpl\ndef before_turm(event): ...", "hook 'before_turm', which does not exist"
    ),
    "undeclared hook": Broken(
        HEAD + "@on.before_turn\ndef f(event): ...\n@on.authorize_tool_call\ndef g(event): ...",
        "'authorize_tool_call', which its manifest does not declare",
    ),
    "undeclared contribution": Broken(
        HEAD + "@on.contribute_tools\ndef f(ctx): return []",
        "'contribute_tools', which its manifest does not declare",
    ),
    "start raises": Broken(
        HEAD + "@on.start\ndef f(ctx): raise OSError('no network')",
        "its start failed: OSError: no network",
        manifest=manifest_of("broken", hooks={"before_turn": 1, "start": 1}),
    ),
    "start never returns": Broken(
        HEAD + "@on.start\nasync def f(ctx): await asyncio.Event().wait()",
        "its start failed: no answer within",
        manifest=manifest_of("broken", hooks={"before_turn": 1, "start": 1}),
    ),
    "bad manifest": Broken("1 / 0", "its manifest cannot be used", "incompatible", manifest="{"),
    "manifest of another": Broken(
        "1 / 0", "its manifest is that of 'x'", "incompatible", manifest=manifest_of("x")
    ),
}  # fmt: skip

_LISTENS = manifest_of("broken", hooks={"finalize_content": 1})


def _chain(body: str) -> str:
    return HEAD + f"@on.finalize_content\nasync def f(event):\n    {body}\n"


IN_A_HOOK = {
    "raises": Broken(_chain("raise ValueError('mine')"), "ValueError: mine", manifest=_LISTENS),
    "never returns": Broken(
        _chain("await asyncio.Event().wait()"), "no answer within", manifest=_LISTENS
    ),
    "sys.exit": Broken(_chain("sys.exit(3)"), "SystemExit: 3", manifest=_LISTENS),
    "KeyboardInterrupt": Broken(
        _chain("raise KeyboardInterrupt"), "KeyboardInterrupt", manifest=_LISTENS
    ),
    "cancels itself": Broken(
        _chain("raise asyncio.CancelledError"), "CancelledError", manifest=_LISTENS
    ),
    "rubbish": Broken(_chain("return 5"), "returned int instead of str", manifest=_LISTENS),
}


def tool_code(body: str) -> str:
    """Return the code of a plugin whose tool ``odd`` does this."""
    return HEAD + (
        "class OddTool(Tool):\n"
        "    name = 'odd'\n    description = 'odd it'\n"
        "    parameters = {'type': 'object', 'properties': {}}\n"
        "    async def execute(self, context, arguments):\n"
        f"        {body}\n"
        "@on.contribute_tools\ndef tools(ctx): return [OddTool()]\n"
    )


TOOL_MANIFEST = manifest_of("broken", declarations=[tool_declaration("odd")])

IN_A_TOOL = {
    "raises": ("raise ValueError('mine')", "odd failed: ValueError: mine"),
    "hangs": ("await asyncio.Event().wait()", "odd did not finish within 0.2 seconds"),
    "sys.exit": ("sys.exit(3)", "odd failed: SystemExit: 3"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "odd failed: KeyboardInterrupt"),
    "cancels itself": ("raise asyncio.CancelledError", "odd failed: it cancelled itself"),
}
