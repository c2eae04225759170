"""Gates client libraries that are wrong on purpose, and reports which requirements failed.

Only the scenarios of what a defect breaks are played, or all of them: then nothing else may turn red.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from msgspec import Struct

from plumbline.cli.scenario_services import ScenarioServices
from plumbline.conformance.clients.gate import GateOptions, catalogue, gate
from plumbline.verdicts import CheckResult, Level, Outcome
from tests.mutation import broken_amqp_client
from tests.mutation.clients.nats_defects import DEFECTS


class Twin(Struct, frozen=True):
    """A client library with one defect: the requirements it breaks, and the command that runs its adapter."""

    name: str
    breaks: tuple[str, ...]
    command: tuple[str, ...]


class Detection(Struct, frozen=True):
    """What the gate saw of one twin: the requirements that turned red, and one failure in a line."""

    twin: Twin
    red: tuple[str, ...]
    evidence: str

    @property
    def missed(self) -> tuple[str, ...]:
        """What it breaks without being detected."""
        return tuple(name for name in self.twin.breaks if name not in self.red)

    @property
    def others(self) -> tuple[str, ...]:
        """What else turned red."""
        return tuple(name for name in self.red if name not in self.twin.breaks)


def whole() -> Twin:
    """The library for NATS without a defect."""
    return Twin("", (), (sys.executable, "-m", "tests.mutation.clients"))


def whole_amqp() -> Twin:
    """aio-pika with what it fails by itself repaired, and no fault."""
    return Twin("", (), broken_amqp_client.command(""))


def twins() -> list[Twin]:
    """All of them: those for NATS, then those for AMQP."""
    nats = [Twin(one.name, (one.breaks,), (*whole().command, one.name)) for one in DEFECTS.values()]
    faults = broken_amqp_client.faults()
    amqp = [Twin(name, one.breaks, tuple(broken_amqp_client.command(name))) for name, one in faults.items()]
    return nats + amqp


def detect(twin: Twin, *, everything: bool = False) -> Detection:
    """Play the scenarios of what it breaks, or all."""
    results = gated(twin, () if everything else twin.breaks)
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    red = sorted({name for result in failed for name in result.requirements})
    return Detection(twin, tuple(red), f"{failed[0].id}: {failed[0].message}" if failed else "nothing failed")


def gated(twin: Twin, select: Sequence[str] = ()) -> tuple[CheckResult, ...]:
    """The checks of one gate."""
    return gate(GateOptions(twin.command, select=tuple(select)), ScenarioServices(), ()).result.checks


def never_alone(detections: Iterable[Detection]) -> list[str]:
    """What some of these break, and none of them alone; all scenarios were played."""
    known = list(detections)
    alone = {one.red[0] for one in known if len(one.red) == 1 and not one.missed}
    return sorted({name for one in known for name in one.twin.breaks} - alone)


def musts_without_twin() -> list[str]:
    """MUSTs of client libraries that nothing breaks on purpose."""
    broken = {name for twin in twins() for name in twin.breaks}
    rows = catalogue().requirements
    return [row.id for row in rows if row.level is Level.MUST and not row.excluded and row.id not in broken]
