"""Fuzzing: targets that take any bytes, the engine that looks for new ones, cases once found."""

from __future__ import annotations

from typing import Final

TARGETS: Final = {
    "session_file": "",
    "bus_file": "",
    "config_file": "",
    "state_file": "",
    "event_stream": "nanobot_openai",
    "message_stream": "nanobot_anthropic",
    "thoughts": "",
    "plugin_index": "",
    "wheel": "",
    "markdown": "",
    "webhook_request": "nanobot_webhook",
    "discord_frame": "nanobot_discord",
    "slack_frame": "nanobot_slack",
    "mail": "nanobot_email",
    "whatsapp_call": "nanobot_whatsapp",
    "shell_command": "nanobot_shell",
    "skill_file": "nanobot_skills",
    "sign_in": "nanobot_openai",
}
"""Name of a module beside this one, which has `fuzz_one`, `seeds` and `TOKENS`, to the plugin that
it needs, or an empty string."""
