"""Shell commands for the agent: `exec` and `exec_session`, guarded, limited and sandboxed."""

from __future__ import annotations

__all__: list[str] = []
