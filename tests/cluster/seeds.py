"""``make simulate``: simulated clusters of many seeds. Without a defect, none may be convicted.

Prints a line now and then, and one for each conviction. Exit code 1 if there is a conviction.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from plumbline.cluster.history import Retention
from plumbline.cluster.nats.judging import judge
from tests.cluster.simulated.cluster import SimulatedCluster
from tests.cluster.simulated.nodes import SimulatedDefect

LINES = 100  # that are printed, about


def convictions(seed: int, seconds: int, defect: SimulatedDefect | None = None) -> tuple[str, ...]:
    """What a cluster is convicted of in so many virtual seconds, and whether something is undecided. With an
    odd seed, the stream is a work queue."""
    retention = Retention.WORK_QUEUE if seed % 2 else Retention.LIMITS
    found = judge(SimulatedCluster(seed, defect, seconds, retention).run())
    undecided = ("undecided",) if found.undecided else ()
    return (*(str(finding) for finding in found.findings), *undecided)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="virtual seconds of each")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--defect", choices=[defect.name.lower() for defect in SimulatedDefect])
    options = parser.parse_args(arguments)
    defect = SimulatedDefect[options.defect.upper()] if options.defect else None
    seeds = range(options.first, options.first + options.seeds)
    judged = partial(convictions, seconds=options.seconds, defect=defect)
    convicted = 0
    with ProcessPoolExecutor(options.processes) as pool:
        results = zip(seeds, pool.map(judged, seeds, chunksize=10), strict=True)
        for done, (seed, found) in enumerate(results, 1):
            if found:
                convicted += 1
                print(f"seed {seed}: {'; '.join(found)}", flush=True)
            if done == len(seeds) or done % max(1, len(seeds) // LINES) == 0:
                print(f"{done} of {len(seeds)} seeds, {convicted} convicted", flush=True)
    return 1 if convicted else 0


if __name__ == "__main__":
    sys.exit(main())
