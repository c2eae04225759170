"""Runs the checks of what a defect breaks against a broker that has it, and reports their outcomes.

The checks run through the engine itself, one after the other, without pytest between: the question is
whether they see the defect, and a hundred runs of the whole suite would ask it no better.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from msgspec import Struct

from plumbline.conformance import suite
from plumbline.conformance.check import Check, protocol_of
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import AccessRefusedError, NatsUrl, TargetAccess, open_target
from plumbline.conformance.targets.urls import parse_url
from plumbline.conformance.targets.variants import main_server, variants
from plumbline.errors import TargetUnreachable
from plumbline.reference_broker.amqp import defects as amqp_defects
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats import defects as nats_defects
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.defects import DefectNotApplicableError
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.registry import Defect
from plumbline.verdicts import CheckResult, Outcome
from tests.deciding import decided
from tests.virtual.servers import ServerCrashError
from tests.virtual.target import VirtualTarget

# A signal, TLS, and messages that the system puts into one segment.
WITH_SOCKETS = ("CORE-100", "CORE-107", "AMQP-TLS-*")


class Detection(Struct, frozen=True):
    """What the suite saw of one defect. ``red`` are the requirements whose checks failed."""

    defect: str
    breaks: tuple[str, ...]
    red: tuple[str, ...]
    results: tuple[CheckResult, ...]
    unreachable: str = ""
    crash: str = ""  # the traceback of a core that raised an exception: then the defect is badly written
    duration_s: float = 0.0

    @property
    def missed(self) -> tuple[str, ...]:
        """What the defect breaks and no check saw."""
        return tuple(name for name in self.breaks if name not in self.red)

    @property
    def evidence(self) -> str:
        """The first failure, in a line; without one, what came instead."""
        failed = [result for result in self.results if result.outcome is Outcome.FAILED]
        if failed:
            return f"{failed[0].id}: {failed[0].message}"
        return self.unreachable or "; ".join(f"{r.id}: {r.outcome} {r.message}" for r in self.results)


all_checks = cache(suite.all_checks)  # read once for each process: they are read-only
catalogue = cache(Catalogue.load)


def checks_of(requirements: Sequence[str]) -> list[Check]:
    """The checks that verify any of these requirements."""
    return [check for check in all_checks() if set(check.requirements) & set(requirements)]


def all_defects() -> list[Defect[Any]]:
    """The defects of every reference broker."""
    return [*nats_defects.all_defects(), *amqp_defects.all_defects()]


def speaks(defect: Defect[Any]) -> str:
    """The protocol of the broker that has it."""
    return protocol_of(defect.breaks[0])


def _named(name: str, protocol: str) -> Defect[Any]:
    (found,) = (one for one in all_defects() if one.name == name and speaks(one) == protocol)
    return found


def detect(defect: str, protocol: str, checks: Sequence[Check] | None = None) -> Detection:
    """Run ``checks`` (default: those of what it breaks) against a broker with this defect."""
    began = time.monotonic()
    found = _named(defect, protocol)
    chosen = checks_of(found.breaks) if checks is None else checks
    with ExitStack() as running:
        try:
            serve = _serve_amqp if protocol == "amqp" else _serve_nats
            access = serve(defect, chosen, running)
        except (TargetUnreachable, AccessRefusedError) as error:
            return _detection(found, (), str(error), "", began)
        results = tuple(decided(check, access, catalogue()) for check in chosen)
    return _detection(found, results, "", "", began)


def detect_without_sockets(defect: str, protocol: str) -> Detection:
    """The same with cores in this process, on a clock that waiting moves: the result never depends on how
    busy the machine is."""
    began = time.monotonic()
    found = _named(defect, protocol)
    target = VirtualTarget(protocol, [defect])
    with target.installed():
        try:
            access = target.access
        except (TargetUnreachable, AccessRefusedError, ServerCrashError) as error:
            return _detection(found, (), str(error), target.world.crash, began)
        results = tuple(run_check(check, access, catalogue()) for check in checks_of(found.breaks))
    return _detection(found, results, "", target.world.crash, began)


def needs_sockets(defect: Defect[Any]) -> bool:
    """Whether what it breaks cannot be seen without sockets, or without a process."""
    return any(fnmatchcase(requirement, pattern) for requirement in defect.breaks for pattern in WITH_SOCKETS)


def _detection(
    defect: Defect[Any], results: tuple[CheckResult, ...], unreachable: str, crash: str, began: float
) -> Detection:
    red = {name for one in results if one.outcome is Outcome.FAILED for name in one.requirements}
    duration_s = time.monotonic() - began
    return Detection(defect.name, defect.breaks, tuple(sorted(red)), results, unreachable, crash, duration_s)


def _serve_nats(defect: str, checks: Sequence[Check], running: ExitStack) -> TargetAccess:
    """A broker with the defect in every configuration that the checks ask for."""
    asked = {check.variant for check in checks if check.variant}
    urls: dict[str, NatsUrl] = {}
    for name, variant in {"": main_server(), **variants()}.items():
        if name and name not in asked:
            continue
        try:
            thread = NatsBroker.in_thread(Config.of(**variant.config), defect=defect)
        except DefectNotApplicableError:
            # Checks of a configuration without JetStream then meet a broker that is whole there.
            thread = NatsBroker.in_thread(Config.of(**variant.config))
        urls[name] = NatsUrl.parse(variant.url(NatsUrl.parse(running.enter_context(thread)).address))
    program = (sys.executable, "-m", "plumbline", "broker", "nats", "--defect", defect)
    return open_target(RunningTarget(urls.pop(""), urls, program=program), run="mutat")


def _serve_amqp(defect: str, checks: Sequence[Check], running: ExitStack) -> TargetAccess:
    """A broker with the defect."""
    url = running.enter_context(AmqpBroker.in_thread(defect=defect))
    program = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1", "--defect", defect)
    return open_target(RunningTarget(parse_url(url), program=program, takes_settings=True), run="mutat")
