"""Which of these tests can run: those whose plugins are installed.

They attack plugins through their own modules, so without one they cannot even be collected.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

_NEEDED = {
    "goals/test_goals.py": (
        "nanobot-files",
        "nanobot-message",
        "nanobot-openai",
        "nanobot-shell",
        "nanobot-usage",
        "nanobot-web",
    ),
    "test_file_tools.py": ("nanobot-files",),
    "test_injection.py": (
        "nanobot-files",
        "nanobot-http",
        "nanobot-mcp",
        "nanobot-message",
        "nanobot-openai",
        "nanobot-shell",
        "nanobot-telegram",
        "nanobot-web",
        "nanobot-webhook",
    ),
    "test_open_bind.py": ("nanobot-http",),
    "test_shell_bypasses.py": ("nanobot-shell",),
}
_NEEDED["test_leaks.py"] = (
    *_NEEDED["test_injection.py"],
    "nanobot-offline",
    "nanobot-transcription",
    "nanobot-usage",
)


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


collect_ignore: list[str] = [
    name for name, needed in _NEEDED.items() if not all(map(_is_installed, needed))
]
