"""The rules of ``monitors`` that a client can break, judged over all scenarios of a run.

Each is one check, ``monitors::<rule>``, of one ``CLIENT-*`` requirement: whatever a scenario is about, what
passed in it must keep the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from plumbline.conformance.check import Check
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import result_of
from plumbline.monitors import MONITORS, Observation, Violation
from plumbline.verdicts import CheckResult, Outcome, WireLine
from plumbline.wire import amqp
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.nats.jetstream import ACK_PREFIX
from plumbline.wire.sender import Sender


class ClientRule(Struct, frozen=True):
    """A monitor's rule as a check of a client; ``counts`` tells the operations that are evidence for it."""

    name: str
    protocol: str
    check: Check
    counts: Callable[[Observation], bool]


class ScenarioTraffic(Struct, frozen=True):
    """What of one scenario rules want: what broke them, how much evidence there was by rule, and its wire."""

    scenario: str
    violations: tuple[Violation, ...]
    evidence: dict[str, int]
    wire: tuple[WireLine, ...]


def evidence(observations: Sequence[Observation]) -> dict[str, int]:
    """How many of these operations count for each rule."""
    return {rule.name: sum(map(rule.counts, observations)) for rule in RULES}


def judge_rule(rule: ClientRule, traffic: Sequence[ScenarioTraffic], catalogue: Catalogue) -> CheckResult:
    """The outcome of the rule in all of these."""
    for one in traffic:
        for violation in one.violations:
            if violation.rule == rule.name:
                because = "".join(f"\nbecause {place}" for place in violation.earlier)
                failed = Failed(
                    f"{one.scenario}: {violation.actual}",
                    expected=violation.expected,
                    actual=f"{violation.place}{because}",
                )
                result = result_of(rule.check, catalogue, Outcome.FAILED, failed)
                return msgspec.structs.replace(result, wire=_mark_offending(one.wire, violation))
    count = sum(one.evidence.get(rule.name, 0) for one in traffic)
    if not count:
        none = Unsupported("no scenario of this run exercises the rule")
        return result_of(rule.check, catalogue, Outcome.UNSUPPORTED, none)
    return msgspec.structs.replace(result_of(rule.check, catalogue, Outcome.PASSED, None), observations=count)


def _mark_offending(wire: Sequence[WireLine], violation: Violation) -> tuple[WireLine, ...]:
    """The wire with the lines of the violation's places pointed at."""
    places = {(f"wire {place.connection}", place.text) for place in (violation.place, *violation.earlier)}
    return tuple(
        msgspec.structs.replace(line, offending=True)
        if (line.connection, f"{line.direction} {line.text}") in places
        else line
        for line in wire
    )


def _rule(name: str, protocol: str, requirement: str, counts: Callable[[Observation], bool]) -> ClientRule:
    (monitor,) = (one for one in MONITORS if one.rule == name)
    check = Check(
        id=f"monitors::{name}",
        title=monitor.title,
        requirements=(requirement,),
        run=lambda scene: None,
        source=monitor.source,
        where="conformance/clients/rules.py",
    )
    return ClientRule(name, protocol, check, counts)


def _is_js_ack(seen: Observation) -> bool:
    operation = seen.operation
    return isinstance(operation, Pub | HPub) and operation.subject.startswith(f"{ACK_PREFIX}.")


def _is_amqp_ack(seen: Observation) -> bool:
    operation = seen.operation
    settles = ("basic.ack", "basic.nack", "basic.reject")
    return seen.sender is Sender.CLIENT and isinstance(operation, amqp.Method) and operation.method in settles


RULES: tuple[ClientRule, ...] = (
    _rule("one-acknowledgement", "nats", "CLIENT-ACK-010", _is_js_ack),
    _rule("known-delivery-tag", "amqp", "CLIENT-SETTLE-001", _is_amqp_ack),
)
