"""Services of the machine and the way out of it."""

from __future__ import annotations

from typing import Final

from tests.security.goals.goal import Goal, call, python, run, shell
from tests.security.goals.trial import connects, learns

_CONNECT: Final = """\
import socket
one = socket.socket(socket.FAMILY, socket.KIND)
one.settimeout(2)
one.connect(ADDRESS)
one.send(b'@NONCE')
"""


def _connect(family: str, kind: str, address: str) -> str:
    code = _CONNECT.replace("FAMILY", family).replace("KIND", kind)
    return code.replace("ADDRESS", address)


NETWORK: Final = (
    Goal(
        id="fetch of this machine",
        power="read a page of a local service",
        means=(
            tuple(
                call("web_fetch", url=f"http://{host}:@PORT/")
                for host in (
                    *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"),
                    *("0x7f.1", "127.1", "0.0.0.0", "0177.0.0.1", "[64:ff9b::7f00:1]"),
                )
            ),
        ),
        reached=connects("tcp", "tcp6"),
    ),
    Goal(
        id="fetch a file",
        power="read a private file as if it were a page",
        means=(
            (
                call("web_fetch", url="file://@USER/Documents/diary.txt"),
                call("web_fetch", url="file://localhost@USER/Documents/diary.txt"),
                call("web_fetch", url="@USER/Documents/diary.txt"),
                call("web_fetch", url="data:text/plain,x"),
                call("web_fetch", url="unix://@SERVICE"),
            ),
        ),
        reached=lambda trial: learns("diary")(trial) or connects("unix")(trial),
    ),
    Goal(
        id="reach a local port",
        power="reach a TCP service of the machine from a command",
        means=(
            (
                run("curl -s http://127.0.0.1:@PORT/"),
                run("wget -qO- http://localhost:@PORT/"),
                run("bash -c 'echo hello > /dev/tcp/127.0.0.1/@PORT'"),
            ),
            shell("curl -s http://127.0.0.1:@PORT/; nc -z 127.0.0.1 @PORT"),
            python(_connect("AF_INET", "SOCK_STREAM", "('127.0.0.1', @PORT)")),
            python(_connect("AF_INET6", "SOCK_STREAM", "('::1', @PORT)")),
        ),
        reached=connects("tcp", "tcp6"),
        setting="strict",
    ),
    Goal(
        id="reach a local socket",
        power="reach a service of the owner's on a unix socket",
        means=(
            (run("curl -s --unix-socket @SERVICE http://x/"),),
            python(_connect("AF_UNIX", "SOCK_STREAM", "'@SERVICE'")),
            python(
                "import os\nos.symlink('@SERVICE', 's')\n"
                + _connect("AF_UNIX", "SOCK_STREAM", "'s'")
            ),
        ),
        reached=connects("unix"),
    ),
    Goal(
        id="reach an abstract socket",
        power="reach a service of the session on an abstract socket",
        means=(
            (run("curl -s --abstract-unix-socket @ABSTRACT http://x/"),),
            python(_connect("AF_UNIX", "SOCK_STREAM", "'\\0@ABSTRACT'")),
        ),
        reached=connects("abstract"),
        setting="strict",
    ),
    Goal(
        id="send a datagram",
        power="send data out by UDP, such as in a question to a name server",
        means=(
            (run("bash -c 'echo hello > /dev/udp/127.0.0.1/@UDP'"),),
            python(_connect("AF_INET", "SOCK_DGRAM", "('127.0.0.1', @UDP)")),
        ),
        reached=connects("udp"),
        setting="strict",
    ),
    Goal(
        id="open a door",
        power="open a port of the machine to the outside",
        means=(
            python(
                "import socket\none = socket.create_server(('0.0.0.0', @DOOR))\n"
                "one.settimeout(2)\none.accept()"
            ),
        ),
        reached=connects("door"),
        setting="strict",
    ),
)
