"""Programs on which the reference broker once differed from real servers: now it answers as they do."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.conformance.explore.commands import (
    Acknowledge,
    AcknowledgeAndPull,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Leave,
    Listen,
    Publish,
    Pull,
    Purge,
    Wait,
)
from plumbline.conformance.explore.program_writer import write
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.trial import play_script
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.wire.units import SECOND
from tests.conformance.explore.worlds import access, reference

pytestmark = pytest.mark.slow  # make test-all runs it

STREAM = CreateStream("ORDERS")
SMALL = CreateStream("ORDERS", {"max_msg_size": 4})
WAITING = Pull("ORDERS", "DISPATCH", {"batch": 2})
TO_INTEREST = CreateStream("ORDERS", {"retention": "interest"}, update=True)
A, B = Publish("ORDERS", "a"), Publish("ORDERS", "b")
LISTEN, LEAVE = Listen("ORDERS", "DISPATCH"), Leave("ORDERS", "DISPATCH")
TO_B = CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}, "b")
LAST_OF_EACH = {"ack_policy": "explicit", "deliver_policy": "last_per_subject", "filter_subject": "ORDERS.>"}
ACK, ACK_OF_TWO_AGO, ACK_OF_THE_ONE_BEFORE = (Acknowledge(ago, "+ACK") for ago in (0, 2, 1))


def consumer(**settings: Any) -> CreateConsumer:
    return CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit", **settings})


def push(**settings: Any) -> CreateConsumer:
    return CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit", **settings}, "a")


def pull(batch: int) -> Pull:
    return Pull("ORDERS", "DISPATCH", {"batch": batch, "no_wait": True})


def purge(token: str | None = None, **body: int) -> Purge:
    return Purge("ORDERS", body, token)


def expecting(header: str, value: str) -> Publish:
    return Publish("ORDERS", "a", ((header, value),))


PROGRAMS: dict[str, Program] = {
    "a purge beyond the end, of nothing": (STREAM, consumer(), purge(seq=3)),
    "a purge beyond the end": (STREAM, consumer(), A, purge(seq=3), A),
    "a purge beyond the end, with a filter": (STREAM, consumer(filter_subject="ORDERS.a"), A, purge(seq=3)),
    "a purge beyond the end, with a filter and a request that waits": (
        *(STREAM, consumer(filter_subject="ORDERS.a"), WAITING, purge(seq=3)),
    ),
    "a purge of what the filter passes over": (STREAM, consumer(filter_subject="ORDERS.a"), B, purge(seq=2)),
    "a purge of the consumer's own subject, of nothing": (
        *(STREAM, consumer(filter_subject="ORDERS.a"), B),
        purge("a"),
    ),
    "a purge of a part of what is pending": (STREAM, consumer(), A, A, pull(2), purge(seq=2)),
    "a purge of all but one of what is pending": (STREAM, consumer(), A, A, pull(2), purge(keep=1)),
    "a purge of what is acknowledged": (STREAM, consumer(), A, A, A, pull(3), ACK_OF_TWO_AGO, purge(seq=2)),
    "a purge, then an acknowledgement of what it left": (
        *(STREAM, consumer(), A, A, A, pull(3)),
        *(purge(seq=2), ACK_OF_THE_ONE_BEFORE),
    ),
    "a purge below what is pending": (
        *(STREAM, consumer(), A, A, A, DeleteMessage("ORDERS", 1), pull(1), ACK, pull(1)),
        purge(seq=2),
    ),
    "the last message, which was deleted": (
        *(STREAM, A, A, DeleteMessage("ORDERS", 2), consumer(deliver_policy="last")),
        *(A, pull(1)),
    ),
    "to interest retention, without a consumer": (STREAM, A, TO_INTEREST, A),
    "to interest retention, acknowledged": (STREAM, A, B, consumer(), pull(1), ACK, TO_INTEREST),
    "to interest retention, pending": (STREAM, A, B, consumer(), pull(1), TO_INTEREST, ACK),
    "to interest retention, acknowledged out of order": (
        *(STREAM, A, A, consumer(), pull(2), ACK, TO_INTEREST),
    ),
    "room again below max_ack_pending, by a deletion": (
        *(STREAM, A, B, consumer(max_ack_pending=1), WAITING, DeleteMessage("ORDERS", 1)),
    ),
    "an acknowledgement behind what the filter passes over": (
        *(STREAM, consumer(filter_subject="ORDERS.a"), A, B, WAITING, ACK),
    ),
    "fewer messages, but none is to be discarded": (
        *(STREAM, A, A, A, CreateStream("ORDERS", {"max_msgs": 2, "discard": "new"}, update=True), A),
    ),
    "a stream made again, with a first sequence": (STREAM, CreateStream("ORDERS", {"first_seq": 5}), A),
    "a second consumer of a work queue that does not begin at its start": (
        *(CreateStream("ORDERS", {"retention": "workqueue"}), consumer()),
        CreateConsumer("ORDERS", "AUDIT", LAST_OF_EACH),
    ),
    "a push consumer, with and without a subscriber": (
        *(STREAM, push(), A, LISTEN, A, ACK, LEAVE, A, LISTEN, ACK),
    ),
    "a push consumer is asked for more": (
        *(STREAM, push(), A, LISTEN, Acknowledge(0, "-NAK"), pull(1), AcknowledgeAndPull(0)),
    ),
    "a push consumer that is given another inbox": (
        *(STREAM, push(), LISTEN, A, TO_B, LEAVE, TO_B, A, Listen("ORDERS", "DISPATCH", "b"), ACK),
    ),
    "an acknowledgement to a push consumer that wants none": (
        *(STREAM, push(ack_policy="none", filter_subject="ORDERS.a"), A, LISTEN, B),
        Acknowledge(0, "+TERM"),
    ),
    "heartbeats while somebody listens": (
        *(STREAM, push(idle_heartbeat=2 * SECOND, flow_control=True), LISTEN, A, Wait(3), ACK, Wait(3)),
        *(LEAVE, Wait(3), LISTEN, Wait(3)),
    ),
    "too large, and not the last id": (SMALL, expecting("Nats-Expected-Last-Msg-Id", "1")),
    "too large, and not the last sequence": (SMALL, expecting("Nats-Expected-Last-Sequence", "1")),
    "too large, and another stream": (SMALL, expecting("Nats-Expected-Stream", "EVENTS")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_real_server_and_the_reference_broker_answer_the_same(name: str, nats_server: NatsServer) -> None:
    target = access(nats_server.url, "real")
    program = PROGRAMS[name]
    assert play_script(write(program, reference(target.target.level)), program, target) is None
