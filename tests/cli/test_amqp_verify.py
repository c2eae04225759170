"""``plumbline verify amqp://...`` by the real command: a real RabbitMQ, the reference broker, mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.reference_broker.amqp.defects import all_defects
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from tests.cli.command import one_sentence, verify, write_trace

pytestmark = pytest.mark.slow  # make test-all runs it

FAILS = """title     An ack that is none
source    nowhere
verifies  AMQP-ACK-001
protocol  amqp
> basic.qos prefetch_count=1
< basic.ack delivery_tag=1
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with AmqpBroker.in_thread() as url:
        yield url


def test_the_reference_broker_is_conformant(tmp_path: Path, broker: str) -> None:
    """The whole suite on a real one: ``tests/zoo/test_neighbours.py`` and ``test_zoo.py``."""
    ended = verify(tmp_path, broker, "--json", "r.json")
    assert (ended.code, ended.err) == (0, ""), ended.out
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["target"]["protocol"] == "amqp"
    assert {check["id"] for check in result["checks"]} == {check.id for check in all_checks("amqp")}
    assert {row["id"].partition("-")[0] for row in result["requirements"]} == {"AMQP"}


def test_the_embedded_reference_broker_is_asked_for_by_its_protocol(tmp_path: Path) -> None:
    ended = verify(tmp_path, "amqp", "--select", "AMQP-ACK-00*")
    assert (ended.code, ended.err) == (0, ""), ended.out


def test_a_deliberate_fault_of_the_embedded_broker_is_found(tmp_path: Path) -> None:
    defect = next(one for one in all_defects() if one.breaks[0].startswith("AMQP-ACK"))
    ended = verify(tmp_path, "amqp", "--select", defect.breaks[0], "--defect", defect.name)
    assert ended.code == 1
    assert f"{defect.breaks[0]} MUST" in ended.out
    unknown = verify(tmp_path, "amqp", "--defect", "no-such-defect")
    assert (unknown.code, unknown.out) == (2, "")
    assert "no-such-defect" in one_sentence(unknown.err)


def test_failure_shows_expected_and_actual(tmp_path: Path, broker: str) -> None:
    (tmp_path / "fails.trace").write_text(FAILS)
    ended = verify(tmp_path, broker, "--trace", "fails.trace")
    assert ended.code == 1
    assert "Expected: [1] basic.ack delivery_tag=1" in ended.out
    assert "Actual: [1] basic.qos-ok" in ended.out


def test_checks_of_the_other_protocol_do_not_run(tmp_path: Path, broker: str) -> None:
    ended = verify(tmp_path, broker, "--select", "JS-PULL-*")
    assert (ended.code, ended.out) == (2, "")
    assert "matches no requirement and no check" in one_sentence(ended.err)
    with NatsBroker.in_thread() as url:
        ended = verify(tmp_path, url, "--select", "AMQP-*")
        assert (ended.code, ended.out) == (2, "")


def test_a_trace_of_the_other_protocol_is_a_mistake(tmp_path: Path, broker: str) -> None:
    trace = write_trace(tmp_path / "nats.trace", "CORE-001", expects="PONG")
    ended = verify(tmp_path, broker, "--trace", trace)
    assert (ended.code, ended.out) == (2, "")
    assert "is not such a target" in one_sentence(ended.err)


def test_closed_port_exits_3(tmp_path: Path) -> None:
    ended = verify(tmp_path, "amqp://127.0.0.1:1/%2f")
    assert (ended.code, ended.out) == (3, "")
    assert "connection refused" in one_sentence(ended.err)


def test_a_refused_login_is_a_mistake(tmp_path: Path, broker: str) -> None:
    ended = verify(tmp_path, broker.replace("guest:guest", "guest:wrong"))
    assert (ended.code, ended.out) == (2, "")
    assert "write the credentials into the URL" in one_sentence(ended.err)


def test_waivers_hold_for_amqp_too(tmp_path: Path, broker: str) -> None:
    (tmp_path / "fails.trace").write_text(FAILS)
    verify(tmp_path, broker, "--trace", "fails.trace", "--write-waivers", "w.toml")
    text = (tmp_path / "w.toml").read_text()
    (tmp_path / "w.toml").write_text(text.replace("TODO", "known"))
    ended = verify(tmp_path, broker, "--trace", "fails.trace", "--waivers", "w.toml")
    assert "1 waived" in ended.out
