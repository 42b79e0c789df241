"""The systemd unit or launchd agent that starts the gateway."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from nanobot_core.record import dataclass
from nanobot_core.tasks import KILL_RESERVE_S

LABEL = "nanobot.gateway"


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A systemd unit or a launchd agent.

    Attributes:
        path: where to write it.
        start: command that starts the gateway now and at each login.
        environment: optional file with variables of the gateway; ``None`` if the system does not
            support one.
    """

    path: Path
    content: str
    start: str
    environment: Path | None = None


def service_file(
    python: Path,
    home: Path,
    options: Sequence[str] = (),
    grace_s: float = 30,
    platform: str = sys.platform,
) -> ServiceFile:
    """Return the file for this system.

    Args:
        python: interpreter that nanobot is installed for.
        options: options before the command, such as ``--config``.
        grace_s: seconds that turns have to finish when the gateway stops.
        platform: as in `sys.platform`.
    """
    program = [str(python), "-m", "nanobot_core"]
    command = [*program, *options, "gateway", "run"]
    limit_s = math.ceil(grace_s + KILL_RESERVE_S)
    if platform == "darwin":
        return _launchd(command, home, limit_s)
    return _systemd(command, [*program, "gateway", "reload"], home, limit_s)


def _systemd(command: list[str], reload: list[str], home: Path, limit_s: int) -> ServiceFile:
    """A user unit, see systemd.service(5)."""
    environment = home / "gateway.env"
    content = f"""\
[Unit]
Description=nanobot gateway

[Service]
ExecStart={_line(command)}
ExecReload={_line(reload)}
EnvironmentFile=-{str(environment).replace("%", "%%")}
Environment={_quoted(f"NANOBOT_HOME={home}")}
Restart=on-failure
RestartSec=5
TimeoutStopSec={limit_s}

[Install]
WantedBy=default.target
"""
    path = Path("~/.config/systemd/user/nanobot.service").expanduser()
    return ServiceFile(path, content, "systemctl --user enable --now nanobot", environment)


def _line(command: list[str]) -> str:
    # In a command, unlike in an environment, a dollar sign begins a variable.
    return " ".join(_quoted(part).replace("$", "$$") for part in command)


def _quoted(text: str) -> str:
    """Return a word of a unit file, see systemd.syntax(7); ``%`` begins a specifier."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _launchd(command: list[str], home: Path, limit_s: int) -> ServiceFile:
    """A launch agent, see launchd.plist(5)."""
    words = "\n".join(f"    <string>{escape(part)}</string>" for part in command)
    content = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"
  "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{LABEL}</string>
  <key>ProgramArguments</key>
  <array>
{words}
  </array>
  <key>EnvironmentVariables</key>
  <dict><key>NANOBOT_HOME</key><string>{escape(str(home))}</string></dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ExitTimeOut</key><integer>{limit_s}</integer>
</dict>
</plist>
"""
    path = Path(f"~/Library/LaunchAgents/{LABEL}.plist").expanduser()
    return ServiceFile(path, content, f"launchctl load -w {path}")
