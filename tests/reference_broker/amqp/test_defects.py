"""The registry of AMQP defects. Whether the suite sees each of them is tested in ``tests/mutation``."""

from __future__ import annotations

import re

import pytest

from plumbline.reference_broker.amqp.defects import Defect, UnknownDefectError, all_defects, find
from tests.reference_broker.amqp.virtual import Virtual


@pytest.mark.parametrize("one", all_defects(), ids=lambda one: one.name)
def test_defective_broker_still_delivers(one: Defect) -> None:
    client = Virtual(defect=one.name, files={}).client()
    client.send("queue.declare", queue="q")
    client.publish("q", "message")
    client.take()
    client.send("basic.get", queue="q", no_ack=True)
    bodies = [getattr(operation, "body", b"") for operation in client.take()]
    assert b"message" in bodies


@pytest.mark.parametrize("one", all_defects(), ids=lambda one: one.name)
def test_defect_has_summary_and_requirement(one: Defect) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.name)
    assert one.summary.endswith(".")
    assert one.breaks
    assert all(re.fullmatch(r"AMQP-[A-Z]+-\d{3}", requirement) for requirement in one.breaks)


def test_a_defect_alters_one_broker_and_no_other() -> None:
    altered, whole = Virtual(defect="get-of-nothing-is-silent"), Virtual()
    for virtual, answers in ((altered, 0), (whole, 1)):
        client = virtual.client()
        client.ask("queue.declare", queue="q")
        assert len(client.ask("basic.get", queue="q")) == answers


def test_error_for_unknown_defect_names_a_similar_one() -> None:
    with pytest.raises(UnknownDefectError, match="did you mean any-password-is-right"):
        find("any-password-is-wrong")
