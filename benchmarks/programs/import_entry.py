"""import_entry.py MODULE: what importing a plugin's entry module loads, after the host's own."""

import importlib
import json
import sys
import time

importlib.import_module("nanobot_core.app.application")
name = sys.argv[1]
package = name.partition(".")[0]
before = set(sys.modules)
started_s = time.perf_counter()
importlib.import_module(name)
elapsed_ms = (time.perf_counter() - started_s) * 1e3
known = {*sys.stdlib_module_names, "nanobot_core", package}
foreign = sorted(n for n in set(sys.modules) - before if n.partition(".")[0] not in known)
print(json.dumps({"elapsed_ms": elapsed_ms, "foreign": foreign}))
