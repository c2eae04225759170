"""Streams and queues are made as the run asks, where a check does not name it itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from plumbline.conformance.amqp.connection import QUEUE_TYPE, with_queue_type
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.dimensions import Dimensions, unsupported_rows
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import NatsUrl, parse_url
from plumbline.errors import UsageProblem
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.wire.amqp import Method
from plumbline.wire.nats import Pub

NATS, AMQP = parse_url("nats://h:1"), parse_url("amqp://h:1")


@pytest.fixture(scope="module")
def nats() -> Iterator[TargetAccess]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield open_target(NatsUrl.parse(url))


@pytest.fixture(scope="module")
def amqp() -> Iterator[TargetAccess]:
    with AmqpBroker.in_thread() as url:
        yield open_target(parse_url(url))


@pytest.mark.parametrize(
    ("dimensions", "url", "sentence"),
    [
        (Dimensions(storage="disk"), NATS, "--storage disk: write one of file, memory"),
        (Dimensions(queue_type="stream"), AMQP, "--queue-type stream: write one of quorum, classic"),
        (Dimensions(replicas=6), NATS, "--replicas 6: write a number from 1 to 5"),
        (Dimensions(replicas=-1), NATS, "--replicas -1: write a number from 1 to 5"),
        (Dimensions(storage="file"), AMQP, "--storage is for NATS"),
        (Dimensions(queue_type="quorum"), NATS, "--queue-type is for AMQP"),
    ],
)
def test_a_wrong_dimension_is_an_error_of_usage(dimensions: Dimensions, url: Any, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence):
        dimensions.require_fitting(url)


def test_several_replicas_need_a_cluster() -> None:
    with pytest.raises(UsageProblem, match="is not part of a cluster"):
        Dimensions(replicas=3).require_cluster({}, NATS)
    Dimensions(replicas=3).require_cluster({"cluster": "c"}, NATS)
    Dimensions(replicas=1).require_cluster({}, NATS)


def sent(session: NatsSession, verb: str, **config: Any) -> Mapping[str, Any]:
    """A request for a stream as a trace writes it; what goes out."""
    client, name = session.connect(), session.name("S")
    body = {"name": name, "subjects": [name], **config}
    text = json.dumps(body, separators=(",", ":"))
    client.send(Pub.make(f"$JS.API.{verb}.{name}", text.encode(), session.inbox()))
    raw = next(
        line.raw for line in reversed(session.wire) if line.direction == ">" and b"$JS.API" in line.raw
    )
    found: dict[str, Any] = json.loads(raw.partition(b"\r\n")[2])
    return {key: value for key, value in found.items() if key not in ("name", "subjects")}


IN_MEMORY = {"storage": "memory"}


@pytest.mark.parametrize("verb", ["STREAM.CREATE", "STREAM.UPDATE"])
@pytest.mark.parametrize(
    ("dimensions", "config", "goes_out"),
    [
        (Dimensions(), {"storage": "memory"}, {"storage": "memory"}),
        (Dimensions(storage="file"), {"storage": "memory"}, {"storage": "file"}),
        (Dimensions(storage="file"), {"storage": "file"}, {"storage": "file"}),
        (Dimensions(storage="file"), {}, {}),
        (Dimensions(replicas=3), {"storage": "memory"}, {"storage": "memory", "num_replicas": 3}),
        (Dimensions(replicas=3), {**IN_MEMORY, "num_replicas": 1}, {**IN_MEMORY, "num_replicas": 1}),
        (Dimensions(replicas=3), {**IN_MEMORY, "num_replicas": 6}, {**IN_MEMORY, "num_replicas": 6}),
        (Dimensions("file", 3), {"storage": "memory"}, {"storage": "file", "num_replicas": 3}),
    ],
)  # fmt: skip
def test_a_request_of_a_trace_is_sent_as_the_run_deploys(
    nats: TargetAccess, verb: str, dimensions: Dimensions, config: dict[str, Any], goes_out: dict[str, Any]
) -> None:
    with NatsSession(replace(nats, dimensions=dimensions)) as session:
        assert sent(session, verb, **config) == goes_out


def test_streams_of_the_stage_are_stored_as_asked(nats: TargetAccess) -> None:
    with NatsSession(replace(nats, dimensions=Dimensions(storage="file"))) as session:
        stream = session.stage.stream("S", [session.name("S")])
        assert session.stage.stream_info(stream)["config"]["storage"] == "file"


def test_a_storage_that_a_check_names_is_kept_also_by_its_updates(nats: TargetAccess) -> None:
    with NatsSession(replace(nats, dimensions=Dimensions(storage="file"))) as session:
        stream = session.stage.stream("S", [session.name("S")], storage="memory")
        assert session.stage.stream_info(stream)["config"]["storage"] == "memory"
        assert sent(session, "STREAM.UPDATE", storage="memory") == {"storage": "memory"}


@pytest.mark.parametrize(
    ("queue_type", "arguments", "table", "goes_out"),
    [
        ("quorum", {"durable": True}, {}, {QUEUE_TYPE: "quorum"}),
        ("classic", {"durable": True}, {}, {QUEUE_TYPE: "classic"}),
        ("quorum", {"durable": True}, {QUEUE_TYPE: "classic"}, {QUEUE_TYPE: "classic"}),
        ("quorum", {"durable": False}, {}, {}),
        ("quorum", {"durable": True, "exclusive": True}, {}, {}),
        ("quorum", {"durable": True, "auto_delete": True}, {}, {}),
        ("quorum", {"durable": True}, {"x-max-priority": 3}, {"x-max-priority": 3}),
        ("classic", {"durable": False}, {}, {QUEUE_TYPE: "classic"}),
        ("quorum", {"passive": True, "durable": True}, {}, {}),
    ],
)
def test_queues_are_declared_with_the_type_of_the_run(
    queue_type: str, arguments: dict[str, Any], table: dict[str, Any], goes_out: Any
) -> None:
    asked = Method.make("queue.declare", 1, queue="Q", arguments=table, **arguments)
    sent = with_queue_type(asked, queue_type)
    assert isinstance(sent, Method)
    assert sent.arguments == {**asked.arguments, "arguments": goes_out}


def test_a_type_that_the_target_refuses_is_unsupported(amqp: TargetAccess) -> None:
    refused = "with --queue-type quorum: the target refuses such queues: PRECONDITION_FAILED"

    def access(name: str) -> TargetAccess:
        return replace(amqp, dimensions=Dimensions(queue_type=name))

    with AmqpSession(access("quorum")) as session, pytest.raises(Unsupported, match=refused):
        session.stage.queue("Q")
    with AmqpSession(access("classic")) as session:
        session.stage.queue("Q")
        assert any(f"'{QUEUE_TYPE}': 'classic'" in line.text for line in session.wire)


def test_what_cannot_hold_in_a_dimension_names_checks_that_exist() -> None:
    known = [check.id for check in all_checks()]
    for row in unsupported_rows():
        assert all(any(replace(row, checks=(one,)).names(check) for check in known) for one in row.checks), (
            row
        )
        assert row.dimension in Dimensions("file", 3, "quorum").given, row


def test_what_cannot_hold_is_explained_in_one_sentence() -> None:
    quorum = Dimensions(queue_type="quorum")
    reason = quorum.unsupported_reason("amqp/requeue/position", (3, 10))
    assert reason.startswith("with --queue-type quorum: a quorum queue without a delivery limit puts")
    assert quorum.unsupported_reason("amqp/requeue/position", (4, 0)) == ""
    assert quorum.unsupported_reason("amqp/requeue/twice", (3, 10)) == ""
    assert Dimensions(replicas=1).unsupported_reason("pull/no-wait-batch-ends-with-404", (2, 15)) == ""
    with_replicas = Dimensions(replicas=3).unsupported_reason("pull/no-wait-batch-ends-with-404", (2, 15))
    assert with_replicas.startswith("with --replicas 3: a request with no_wait ends with 408")
    assert Dimensions(queue_type="classic").unsupported_reason("amqp/requeue/position", (3, 10)) == ""
