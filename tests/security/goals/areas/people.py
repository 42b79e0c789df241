"""Other people who use the same agent."""

from __future__ import annotations

from typing import Final

from tests.security.goals.goal import Goal, call, python, read_by_all_means, run, shell
from tests.security.goals.trial import is_shown, learns, writes

_OWNS: Final = "the workspace is the owner's, with what guests have put into their folders"

PEOPLE: Final = (
    Goal(
        id="read another chat",
        power="read what another person has said to the agent",
        means=(
            (
                call("grep", pattern="secret", path="sessions", output_mode="content"),
                call("grep", pattern="secret", path="@WORKSPACE", output_mode="content"),
                call("read_file", path="@WORKSPACE/sessions/cli_victim.jsonl"),
                run("cat @WORKSPACE/sessions/*"),
            ),
            shell("rev sessions/*; base64 -w0 @WORKSPACE/sessions/*victim*"),
            shell(
                "HOME=@USER nanobot sessions show cli:victim; nanobot sessions export cli:victim"
            ),
        ),
        reached=learns("words"),
    ),
    Goal(
        id="see who writes",
        power="see with whom the agent talks",
        means=(
            (
                call("list_dir", path="sessions"),
                call("list_dir", path="@WORKSPACE/sessions"),
                call("glob", pattern="**/*victim*", path="@WORKSPACE"),
                run("ls @WORKSPACE/sessions"),
            ),
            shell("HOME=@USER nanobot sessions list; ls -R @WORKSPACE"),
            python(
                "import sqlite3, pathlib\nfor one in pathlib.Path('@HOME').rglob('*.sqlite'):\n"
                "    print(one, *sqlite3.connect(one).iterdump())\n"
            ),
        ),
        reached=lambda trial: is_shown("cli_victim")(trial) or is_shown("cli:victim")(trial),
    ),
    Goal(
        id="read a received file",
        power="read a file that another person has sent",
        means=(
            (
                call("list_dir", path="@HOME/media", recursive=True),
                call("glob", pattern="**/*", path="@HOME/media"),
                call("grep", pattern=".", path="@HOME/media", output_mode="content"),
                run("cat @HOME/media/*/*"),
            ),
            shell("cat ../media/*/*; rev @HOME/media/*/*"),
            shell("ln -s @HOME/media post"),
            (call("grep", pattern=".", path="post", output_mode="content"),),
        ),
        reached=learns("letter"),
    ),
    Goal(
        id="read another's results",
        power="read what a tool has found for another person",
        means=(
            *read_by_all_means(
                "@WORKSPACE/.nanobot/tool-results/chatty_victim/call_1.txt",
                ".nanobot/tool-results/chatty_victim/call_1.txt",
            ),
            (call("grep", pattern=".", path=".nanobot/tool-results", output_mode="content"),),
        ),
        plants={".nanobot/workspace/.nanobot/tool-results/chatty_victim/call_1.txt": "result"},
        reached=learns("result"),
    ),
    Goal(
        id="read a guest's files",
        power="read the files of another guest's",
        means=read_by_all_means("@WORKSPACE/guests/victim/private.txt", "../victim/private.txt"),
        reached=learns("guest-file"),
        documented=dict.fromkeys(("terminal", "owner", "unattended"), _OWNS),
    ),
    Goal(
        id="change the owner's work",
        power="change what the owner keeps in the workspace",
        means=(
            (
                call("write_file", path="@WORKSPACE/report.txt", content="ruined"),
                call("write_file", path="../../report.txt", content="ruined"),
                call("write_file", path="report.txt", content="ruined"),
                run("echo ruined > @WORKSPACE/report.txt"),
            ),
        ),
        reached=writes(".nanobot/workspace/report.txt"),
        documented=dict.fromkeys(("terminal", "owner", "unattended"), _OWNS),
    ),
    Goal(
        id="write to another chat",
        power="write to another person in the agent's name",
        means=(
            (
                call("message", content="psst-@NONCE", chat_id="victim"),
                call("message", content="psst-@NONCE", channel="chatty", chat_id="victim"),
                call("message", content="psst-@NONCE", channel="CHATTY", chat_id="victim"),
            ),
            python(
                "import json, socket\none = socket.socket(socket.AF_UNIX)\n"
                "one.connect('@HOME/gateway/control.sock')\n"
                "one.sendall(json.dumps({'do': 'send', 'channel': 'chatty', 'chat_id': 'victim', "
                "'text': 'psst-@NONCE'}).encode() + b'\\n')\nprint(one.recv(1000))"
            ),
        ),
        reached=lambda trial: trial.reaches("victim"),
    ),
)
