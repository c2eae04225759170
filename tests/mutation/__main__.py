"""``make mutation``: each defect, what it breaks, and what the suite saw of it. Exit 1 if one went unseen.

First those of the reference brokers, which ``plumbline verify`` has to see, then those of client libraries,
which ``plumbline gate`` has to see.

    python -m tests.mutation [PATTERN ...] [--all-checks]

PATTERN names defects or requirements (``'JS-ACK-*'``). ``--all-checks`` runs the whole suite against each
defect, not only the checks of what it breaks, and shows what else turned red. Then each requirement of client
libraries must have a broken client that fails it and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.suite import all_checks
from plumbline.reference_broker.registry import Defect
from plumbline.verdicts import Level
from tests.mutation.clients.detection import Detection as ClientDetection
from tests.mutation.clients.detection import Twin, musts_without_twin, never_alone, twins
from tests.mutation.clients.detection import detect as detect_twin
from tests.mutation.detection import Detection, all_defects, detect, speaks

GATES = 4  # each of which plays scenarios side by side
WORKERS = 3 * (os.cpu_count() or 1)  # checks mostly wait


def _detect(defect: tuple[str, str], *, everything: bool) -> Detection:
    name, protocol = defect
    return detect(name, protocol, all_checks(protocol) if everything else None)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--all-checks", action="store_true")
    options = parser.parse_args()
    chosen = [defect for defect in all_defects() if _named((defect.name, *defect.breaks), options.patterns)]
    clients = [twin for twin in twins() if _named((twin.name, *twin.breaks), options.patterns)]
    if not chosen and not clients:
        print(
            "no defect matches; plumbline broker nats (or amqp) --list-defects shows them",
            file=sys.stderr,
        )
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(
        "defect", "breaks", "seen", "what else", "evidence", title="Defects of the reference broker"
    )
    gated = _gate(clients, everything=options.all_checks, console=console)
    unseen = sum(bool(one.missed) for one in gated)
    for detection in _detections(chosen, everything=options.all_checks, console=console):
        unseen += bool(detection.missed)
        table.add_row(*_row(detection))
    if chosen:
        console.print(table)
    uncovered = _musts_without_defect() + musts_without_twin()
    if not options.patterns:
        for name in uncovered:
            console.print(f"{name} is a MUST with a check and has no defect", style="red")
    crowded = never_alone(gated) if options.all_checks else []
    for name in crowded:
        console.print(f"{name}: each client that breaks it breaks something else as well", style="red")
    seen = len(chosen) + len(clients) - unseen
    console.print(f"{seen} of {len(chosen) + len(clients)} defects detected")
    return 1 if unseen or crowded or (uncovered and not options.patterns) else 0


def _gate(chosen: list[Twin], *, everything: bool, console: Console) -> list[ClientDetection]:
    """The table of the client libraries, and what the gate saw of each."""
    table = Table("defect", "breaks", "seen", "what else", "evidence", title="Defects of client libraries")
    found = []
    with ThreadPoolExecutor(GATES) as pool:
        for detection in pool.map(partial(detect_twin, everything=everything), chosen):
            found.append(detection)
            seen = f"no: {' '.join(detection.missed)}" if detection.missed else "yes"
            twin, others = detection.twin, " ".join(detection.others)
            table.add_row(twin.name, " ".join(twin.breaks), seen, others, detection.evidence[:200])
    if chosen:
        console.print(table)
    return found


def _named(names: tuple[str, ...], patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _detections(chosen: list[Defect[Any]], *, everything: bool, console: Console) -> Iterator[Detection]:
    with ProcessPoolExecutor(WORKERS) as pool:
        names = [(defect.name, speaks(defect)) for defect in chosen]
        for number, detection in enumerate(pool.map(partial(_detect, everything=everything), names), 1):
            if not console.is_terminal and number % 25 == 0:
                print(f"{number} of {len(names)} ...", flush=True)
            yield detection


def _row(detection: Detection) -> tuple[str, str, str, str, str]:
    others = [name for name in detection.red if name not in detection.breaks]
    seen = f"no: {' '.join(detection.missed)}" if detection.missed else "yes"
    return detection.defect, " ".join(detection.breaks), seen, " ".join(others), detection.evidence[:200]


def _musts_without_defect() -> list[str]:
    broken = {name for defect in all_defects() for name in defect.breaks}
    return [
        requirement.id
        for requirement in Catalogue.load().requirements
        if requirement.level is Level.MUST and not requirement.excluded and requirement.id not in broken
    ]


if __name__ == "__main__":
    sys.exit(main())
