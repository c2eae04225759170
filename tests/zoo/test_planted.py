"""Planted defects are what convicts: through a relay that changes nothing, the same checks pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import AmqpUrl, AnyUrl, NatsUrl
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome
from plumbline.wire.nats import Operation
from tests.deciding import decided
from tests.zoo.deployments import deployments
from tests.zoo.planted import DEFECTS
from tests.zoo.relay import Rewrite, relay

CATALOGUE = Catalogue.load()
PLANTED = {one.planted: (one.protocol, one.fails) for one in deployments().values()}


@pytest.mark.slow
@pytest.mark.parametrize("defect", PLANTED)
def test_the_defect_alone_turns_the_requirement_red(defect: str) -> None:
    protocol, requirement = PLANTED[defect]
    with reached_through(protocol, lambda: _unchanged) as target:
        assert Outcome.FAILED not in outcomes(target, requirement)
    with reached_through(protocol, DEFECTS[defect]) as target:
        assert Outcome.FAILED in outcomes(target, requirement)


def outcomes(target: TargetAccess, requirement: str) -> set[Outcome]:
    """Of the checks of a requirement on the plain server."""
    checks = [
        check
        for check in all_checks(target.url.protocol)
        if requirement in check.requirements and not check.variant
    ]
    found = {decided(check, target, CATALOGUE).outcome for check in checks}
    assert found & {Outcome.PASSED, Outcome.FAILED}
    return found


@contextmanager
def reached_through(protocol: str, rewrites: Callable[[], Rewrite]) -> Iterator[TargetAccess]:
    """The reference broker behind a relay."""
    server = NatsBroker.in_thread(jetstream=True) if protocol == "nats" else AmqpBroker.in_thread()
    with server as url:
        kind: type[NatsUrl] | type[AmqpUrl] = NatsUrl if protocol == "nats" else AmqpUrl
        at = kind.parse(url)
        with relay(protocol, (at.host, at.port), rewrites) as address:
            reached: AnyUrl = kind.parse(f"{protocol}://{address}")
            yield open_target(reached, run="planted")


def _unchanged(operation: Operation) -> bytes:
    return operation.raw
