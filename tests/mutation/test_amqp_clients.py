"""Each MUST of an AMQP client has a broken client that turns it red. ``broken_amqp_client`` has them."""

from __future__ import annotations

import pytest

from conformance.clients.gate import Wanted, catalogue, gate
from conformance.verdicts import Level, Outcome
from plumbline import Stands
from tests.mutation.broken_amqp_client import command, faults


@pytest.mark.parametrize("name", faults())
def test_a_broken_client_is_red_at_the_requirement_it_breaks(name: str) -> None:
    breaks = faults()[name].breaks
    gated = gate(Wanted(command(name), select=breaks, workers=3), Stands(), [])
    verdicts = {one.id: one.verdict for one in gated.result.requirements if one.id in breaks}
    assert verdicts == dict.fromkeys(breaks, str(Outcome.FAILED))


def test_every_must_of_amqp_clients_has_a_broken_client() -> None:
    broken = {requirement for one in faults().values() for requirement in one.breaks}
    rows = [row for row in catalogue().requirements if row.profile == "client-amqp"]
    assert {row.id for row in rows if row.level is Level.MUST} - broken == set()
    assert broken <= {row.id for row in rows}
