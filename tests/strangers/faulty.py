"""Plugins that import, start and answer, and break a promise of their contract."""

from __future__ import annotations

from typing import Final, NamedTuple


class Faulty(NamedTuple):
    """A plugin with one fault.

    Attributes:
        code: its entry module, below `HEAD`.
        reports: part of each message that reports the fault.
    """

    code: str
    reports: tuple[str, ...]


HEAD: Final = """\
import asyncio, threading, time
from pathlib import Path
from nanobot_core import (
    Channel, ChannelSettings, ChannelSpec, ConfigError, Consolidated, ContextBlock, MemoryBackend,
    MemorySpec,
    Service, ServiceSpec, SettingsSection, ToolContext, on, tool,
)
"""


def _tool(body: str, options: str = "", before: str = "") -> str:
    return f'''
{before}
@tool({options})
async def note(context: ToolContext, text: str) -> str:
    """Keep a note."""
{body}
@on.contribute_tools
def tools(ctx): return [note]
'''


_MEMORY = """
class Notes(MemoryBackend):
    def __init__(self, ctx): self.notes = []
    async def context(self, scope):
        return [ContextBlock(name="notes", text=text) for text in self.notes]
    async def consolidate(self, span, token_budget, *, must): return Consolidated()
    async def archive(self, span):
        self.notes += [message.text for message in span.messages]
@on.contribute_memory
def memory(ctx): yield MemorySpec(name="notes", factory=f"{__name__}:Notes")
"""

_CHANNEL = """
class Post(Channel):
    name = "post"
    def __init__(self, ctx): self._ended = asyncio.Event()
    async def start(self, inbox): await self._ended.wait()
    async def stop(self): self._ended.set()
    async def send(self, message):
        try:
            raise ConnectionError("offline")
        except ConnectionError:
            pass
class PostSettings(ChannelSettings): pass
@on.contribute_settings
def settings(): yield SettingsSection("channels.post", f"{__name__}:PostSettings")
@on.contribute_channels
def channels(ctx): yield ChannelSpec(name="post", factory=f"{__name__}:Post")
"""

FAULTY: Final = {
    "a tool that swallows cancellation": Faulty(
        _tool(
            "    try:\n        await asyncio.sleep(60)\n"
            "    except asyncio.CancelledError:\n        return 'done'"
        ),
        ("tool 'note' swallows its cancellation; let asyncio.CancelledError pass",),
    ),
    "a tool that never ends": Faulty(
        _tool(
            "    while True:\n        try:\n            await asyncio.sleep(0.01)\n"
            "        except BaseException:\n            pass"
        ),
        ("tool 'note' swallows its cancellation",),
    ),
    "a tool that shares its state between chats": Faulty(
        _tool("    notes.append(text)\n    return ', '.join(notes)", before="notes = []"),
        ("tool 'note' shows one chat what it got from another; keep state by context.session_key",),
    ),
    "two tools that share their state between chats": Faulty(
        '''
notes = []
@tool
async def remember(text: str) -> str:
    """Keep a note."""
    notes.append(text)
    return "kept"
@tool
async def recall() -> str:
    """Return the notes."""
    return ", ".join(notes)
@on.contribute_tools
def tools(ctx): return [remember, recall]
''',
        ("tool 'recall' shows one chat what another one gave to a tool of this plugin",),
    ),
    "a read-only tool that writes into the workspace": Faulty(
        _tool(
            "    (context.workspace / 'note.txt').write_text(text)\n    return 'kept'",
            "read_only=True",
        ),
        ("tool 'note' is marked read_only and changes the workspace; remove read_only",),
    ),
    "a read-only tool that writes elsewhere": Faulty(
        _tool(
            "    (Path.home() / 'note.txt').write_text(text)\n    return 'kept'", "read_only=True"
        ),
        ("tool 'note' is marked read_only and changes /", "note.txt"),
    ),
    "hooks that leak a task and a thread": Faulty(
        """
tasks = []
@on.before_turn
async def leak(event):
    tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="poller"))
    threading.Thread(target=time.sleep, args=(3600,), name="watcher").start()
""",
        (
            "task poller (", "still runs after stop; start it with ctx.spawn",
            "thread watcher still runs after stop; end and join it in stop",
        ),
    ),
    "a hook that raises in stop": Faulty(
        "@on.stop\ndef stop(ctx, reason): raise OSError('cannot close')",
        ("hook 'stop' failed: OSError: cannot close",),
    ),
    "a hook that blocks": Faulty(
        "@on.after_turn\ndef slow(event): time.sleep(2.5)",
        ("hook 'after_turn' blocks the event loop for 2.", "mark it blocking=True"),
    ),
    "a hook that keeps turns waiting": Faulty(
        "@on.before_turn\nasync def slow(event): await asyncio.sleep(2.5)",
        ("hook 'before_turn' takes 2.", "every turn waits for it; hand the work to ctx.spawn"),
    ),
    "a hook that returns the wrong type": Faulty(
        "@on.finalize_content\ndef shout(event): return 5",
        ("hook 'finalize_content' failed: TypeError: it returns int, expected str or None",),
    ),
    "an observer that returns something": Faulty(
        "@on.before_turn\ndef rewrite(event): return 'other words'",
        ("hook 'before_turn' failed: TypeError: it returns str, expected None",),
    ),
    "a health check that returns the wrong type": Faulty(
        "@on.check_health\ndef health(ctx): return True",
        ("hook 'check_health' failed: TypeError: it returns bool, expected Health or None",),
    ),
    "a hook that fails beside one that needs settings": Faulty(
        "@on.before_turn\ndef check(event): raise ConfigError('set weather.key')\n"
        "@on.finalize_content\ndef shout(event): return 5",
        ("hook 'finalize_content' failed: TypeError: it returns int, expected str or None",),
    ),
    "a memory backend that mixes memories": Faulty(
        _MEMORY,
        ("shows what was said in 'chat/telegram:", "keep what belongs to a MemoryScope under its"),
    ),
    "a channel that drops what it sends": Faulty(
        _CHANNEL,
        ("channel 'post' drops messages: send returned, and nothing left the process",),
    ),
    "a service that returns at once": Faulty(
        """
class Pulse(Service):
    def __init__(self, ctx): pass
    async def run(self): return
@on.contribute_services
def services(ctx): yield ServiceSpec(name="pulse", factory=f"{__name__}:Pulse")
""",
        ("run returns at once; it must work until it is cancelled",),
    ),
    "an entry module that loads a library": Faulty(
        "import json_repair\n@on.before_turn\ndef nothing(event): return None",
        ("loads json_repair, which every command would wait for",),
    ),
}  # fmt: skip

GOOD: Final = '''
from zoneinfo import ZoneInfo
ZONE = ZoneInfo("Europe/Berlin")
@tool(read_only=True)
async def zone(context: ToolContext, text: str) -> str:
    """Name the time zone."""
    await asyncio.sleep(0)
    return f"{text}: {ZONE.key}"
@on.contribute_tools
def tools(ctx): return [zone]
class Poller:
    pass
@on.start
def start(ctx): ctx.spawn(asyncio.sleep(3600), name="poller")
@on.finalize_content
def sign(event): return event.content + "."
'''
"""Keeps its contracts, without a manifest; its imports are those that authors may rely on."""
