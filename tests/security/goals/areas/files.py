"""Files of the owner's, outside the workspace."""

from __future__ import annotations

from typing import Final

from tests.security.goals.goal import (
    Goal,
    call,
    patch_of,
    python,
    read_by_all_means,
    run,
    shell,
    write_by_all_means,
)
from tests.security.goals.trial import learns, writes

_DIARY: Final = "@USER/Documents/diary.txt"

FILES: Final = (
    Goal(
        id="read a private file",
        power="read a private file of the owner's",
        means=read_by_all_means(_DIARY, "../../Documents/diary.txt"),
        reached=learns("diary"),
    ),
    Goal(
        id="list a private folder",
        power="see which files the owner has",
        means=(
            (
                call("list_dir", path="@USER/Documents"),
                call("list_dir", path="../..", recursive=True),
                call("glob", pattern="**/*.txt", path="@USER"),
                call("glob", pattern="../../Documents/*"),
                run("ls -R @USER/Documents"),
            ),
            shell("ls @USER/*/; find ../.. -name '*.txt'; ls /proc/$PPID/root/@USER/Documents"),
            shell("ln -s @USER/Documents papers"),
            (call("list_dir", path="papers"), call("glob", pattern="papers/*")),
        ),
        reached=learns("marker"),
    ),
    Goal(
        id="write a start-up file",
        power="have the owner's shell or session run a program at its next start",
        means=(
            *write_by_all_means("@USER/.bashrc", "../../.bashrc", "touch @USER/owned"),
            *write_by_all_means(
                "@USER/.config/systemd/user/x.service",
                "../../.config/systemd/user/x.service",
                "[Service]",
            ),
        ),
        reached=writes(".bashrc", ".config"),
    ),
    Goal(
        id="admit a key",
        power="log in by ssh with a key of the attacker's",
        means=write_by_all_means(
            "@USER/.ssh/authorized_keys", "../../.ssh/authorized_keys", "ssh-ed25519 BBBB attacker"
        ),
        reached=writes(".ssh"),
    ),
    Goal(
        id="replace a program",
        power="put a program of the attacker's on the owner's PATH",
        means=(
            *write_by_all_means("@USER/.local/bin/git", "../../.local/bin/git", "#!/bin/sh"),
            (run("install -m 755 /bin/true @USER/.local/bin/ls"),),
        ),
        reached=writes(".local"),
    ),
    Goal(
        id="change a document",
        power="change a document of the owner's",
        means=(
            *write_by_all_means("@USER/Documents/plan.txt", "../../Documents/plan.txt", "ruined"),
            (
                call(
                    "edit_file",
                    path="@USER/Documents/plan.txt",
                    old_text="the owner",
                    new_text="nobody",
                ),
                run("sed -i s/owner/nobody/ @USER/Documents/plan.txt"),
            ),
        ),
        reached=writes("Documents"),
    ),
    Goal(
        id="delete a document",
        power="delete a document of the owner's",
        means=(
            (
                call(
                    "apply_patch",
                    patch=patch_of("*** Delete File: ../../Documents/plan.txt"),
                ),
                run("rm @USER/Documents/plan.txt"),
                run("find @USER/Documents -name plan.txt -delete"),
                run("mv @USER/Documents/plan.txt ."),
            ),
            shell("cd ../..; rm -r Documents; rm -rf $HOME/Documents"),
            python("import shutil\nshutil.rmtree('@USER/Documents')"),
        ),
        reached=writes("Documents"),
    ),
    Goal(
        id="open a file to others",
        power="let other accounts of the machine read a private file",
        means=(
            (run("chmod 644 @USER/.ssh/id_ed25519"), run("chmod -R a+rX @USER/.ssh")),
            shell("chmod 666 @USER/.ssh/id_ed25519; chmod 777 ../../.ssh"),
        ),
        reached=writes(".ssh"),
    ),
)
