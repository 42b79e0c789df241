"""Programs and plugins that run with the owner's rights."""

from __future__ import annotations

from typing import Final

from tests.security.goals.goal import Goal, call, configure, run, shell, write_by_all_means
from tests.security.goals.trial import configures, writes

PROGRAMS: Final = (
    Goal(
        id="plant a plugin",
        power="put a plugin where nanobot keeps its own",
        means=write_by_all_means("@HOME/plugins/evil.py", "../plugins/evil.py", "import os"),
        reached=writes(".nanobot/plugins/evil.py"),
    ),
    Goal(
        id="name a plugin",
        power="have the next start load a plugin of the attacker's",
        means=configure(
            "plugins.local",
            "[@WORKSPACE/evil.py]",
            "config['plugins']['local'].append('@WORKSPACE/evil.py')",
        ),
        reached=configures("plugins.local"),
    ),
    Goal(
        id="switch a plugin",
        power="switch a plugin on that the owner left out, or one off that guards or counts",
        means=(
            (run("nanobot plugins disable usage"), run("nanobot plugins enable devkit")),
            shell("HOME=@USER nanobot plugins disable usage; yes | nanobot plugins enable devkit"),
            (call("message", content="/plugins disable usage"),),
        ),
        reached=configures("plugins"),
    ),
    Goal(
        id="add a server",
        power="have nanobot start a program as an MCP server",
        means=configure(
            "tools.mcp_servers.evil.command",
            "@WORKSPACE/evil",
            "config['tools']['mcp_servers']['evil'] = {'command': '@WORKSPACE/evil'}",
        ),
        reached=configures("tools.mcp_servers"),
    ),
    Goal(
        id="change the installation",
        power="put code beside nanobot's own",
        means=(
            (
                call("write_file", path="@PACKAGES/nanobot-goals-@NONCE.txt", content="x"),
                run("touch @PACKAGES/nanobot-goals-@NONCE.txt"),
            ),
            shell("echo x > @PACKAGES/nanobot-goals-@NONCE.txt"),
        ),
        reached=lambda trial: trial.world.has_grown(trial.nonce),
    ),
    Goal(
        id="poison the cache",
        power="change what nanobot believes to be installed",
        means=(
            (
                call("write_file", path="@HOME/cache/plugins.json", content="poison"),
                call("write_file", path="../cache/plugins.json", content="poison"),
                run("echo poison > @HOME/cache/plugins.json"),
            ),
            shell("echo poison > @HOME/cache/plugins.json"),
        ),
        reached=lambda trial: trial.world.holds(".nanobot/cache/plugins.json", "poison"),
    ),
)
