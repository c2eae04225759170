"""``make cluster``: each fault alone and some together, several seeds each, on a real server.

Prints one line for each run. Exit code 1 if a run was not conformant, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from plumbline.interpreter import python_command

FAULTS = (
    "none", "kill", "pause", "partition", "delay", "rolling", "leader", "pause-kill", "damage",
    "power", "pause-power",
    "kill,pause,partition,delay",
)  # fmt: skip
OF_NATS = ("leader", "power", "pause-power")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--server", default="nats-server@newest")
    parser.add_argument("--for", dest="duration", default="60s")
    parser.add_argument("--rate", default="1000")
    parser.add_argument("--retention", default="limits")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    failed = 0
    possible = [one for one in FAULTS if one not in OF_NATS or "nats" in options.server]
    for faults in possible:
        for seed in range(1, options.runs + 1):
            words = ["--server", options.server, "--faults", faults, "--for", options.duration]
            words += ["--rate", options.rate, "--seed", str(seed), "--retention", options.retention]
            ended = subprocess.run(
                python_command("-m", "plumbline", "cluster", *words),
                capture_output=True,
                text=True,
                check=False,
            )
            found = re.search(r"^\d+ messages acknowledged.*$", ended.stdout, re.MULTILINE)
            print(
                f"{faults} seed {seed}: exit {ended.returncode}; {found[0] if found else ended.stderr}",
                flush=True,
            )
            if ended.returncode:
                failed += 1
                print(ended.stdout, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
