"""Start a command, wait for it, and write what it took into a file: start.py REPORT COMMAND..."""

import json
import os
import sys
import time

report, command = sys.argv[1], sys.argv[2:]
started_s = time.monotonic()
process = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(process, 0)
wall_s = time.monotonic() - started_s
with open(report, "w") as file:  # noqa: PTH123 - pathlib would make this process larger
    json.dump(
        {
            "started_s": started_s,
            "wall_ms": wall_s * 1e3,
            "cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3,
            # Linux counts kilobytes, macOS bytes.
            "rss_mb": usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3 / 1.024),
        },
        file,
    )
sys.exit(os.waitstatus_to_exitcode(status))
