"""The registry of defects. Whether the suite sees each of them is tested in ``tests/mutation``."""

from __future__ import annotations

import re

import pytest

from plumbline.reference_broker.nats.defects import (
    Defect,
    DefectNotApplicableError,
    UnknownDefectError,
    all_defects,
    apply,
    find,
    replace,
)
from tests.reference_broker.virtual import Virtual

CORE = [one for one in all_defects() if one.breaks[0].startswith("CORE-")]


@pytest.mark.parametrize("one", CORE, ids=lambda one: one.name)
def test_a_broker_with_a_defect_still_serves(one: Defect) -> None:
    client = Virtual(defect=one.name, jetstream=True).client()
    assert client.ask("SUB a 1\nPUB a 1\nx\nPING") == ["MSG a 1 1 | x", "PONG"]


@pytest.mark.parametrize("one", all_defects(), ids=lambda one: one.name)
def test_defect_has_summary_and_requirement(one: Defect) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.name)
    assert one.summary.endswith(".")
    assert one.breaks
    assert all(re.fullmatch(r"[A-Z]+(-[A-Z0-9]+)+", requirement) for requirement in one.breaks)


def test_a_defect_alters_one_broker_and_no_other() -> None:
    altered, whole = Virtual(defect="nobody-responds-is-not-told"), Virtual()
    request = "SUB in 1\nPUB unused in 0\n"
    assert altered.client().ask(request) == []
    assert len(whole.client().ask(request)) == 1


def test_several_defects_add_up() -> None:
    virtual = Virtual(defect="unsub-max-zero-is-ignored")
    apply(virtual.broker, "nobody-responds-is-not-told")
    assert virtual.client().ask("SUB in 1\nUNSUB 1 0\nPUB unused in 0\n\nPUB in 1\nx") == ["MSG in 1 1 | x"]


def test_error_for_unknown_defect_names_a_similar_one() -> None:
    with pytest.raises(UnknownDefectError, match="did you mean any-password-is-right"):
        find("any-password-is-wrong")


def test_a_defect_of_jetstream_needs_jetstream() -> None:
    with pytest.raises(DefectNotApplicableError, match="start the broker with -js"):
        apply(Virtual().broker, "jetstream-is-not-announced")


def test_replace_rejects_unknown_attribute() -> None:
    with pytest.raises(AttributeError):
        replace(Virtual().broker, "no_such_rule", None)
