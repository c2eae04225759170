"""Broken AMQP clients turn red what they break: one of each group here, all of them in ``make mutation``."""

from __future__ import annotations

import pytest

from plumbline.verdicts import Outcome
from tests.mutation.clients.detection import Twin, detect, gated, twins, whole, whole_amqp

pytestmark = pytest.mark.slow  # make test-all runs it

AMQP = [twin for twin in twins() if twin.command[: len(whole().command)] != whole().command]
ONE_OF_EACH = {twin.breaks[0].rpartition("-")[0]: twin for twin in AMQP}


@pytest.mark.parametrize("twin", ONE_OF_EACH.values(), ids=lambda twin: twin.name)
def test_a_broken_client_is_red_at_the_requirement_it_breaks(twin: Twin) -> None:
    detection = detect(twin)
    assert not detection.missed, detection.evidence


def test_the_library_without_a_fault_is_green() -> None:
    found = {result.id: result.message for result in gated(whole_amqp()) if result.outcome is Outcome.FAILED}
    assert found == {}
