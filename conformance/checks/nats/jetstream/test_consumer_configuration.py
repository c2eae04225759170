"""What a consumer has that was created with a name and ack_policy explicit alone, and what may be refused.

Source: docs.nats.io, "JetStream wire API Reference"; ADR-13.
"""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import (
    Answer,
    field,
    fits,
    refused,
    shows,
    shows_default,
)
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Pub, Sub
from plumbline.wire.nats.jetstream import ApiError, next_subject

SOURCE = 'docs.nats.io, "JetStream wire API Reference"'
MOST_DESCRIPTION = 4096
SHOWN = {
    "deliver_policy": "all",
    "ack_policy": "explicit",
    "ack_wait": 30_000_000_000,
    "max_deliver": -1,
    "replay_policy": "instant",
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "num_replicas": 0,
}
LABELS = ("durable_name", "name", "metadata")  # say nothing of what the consumer does
MANY = 1005  # messages, more than the default of max_ack_pending
REPLICAS_REFUSED = {(500, 10074), (400, 10126)}


@verifies("JS-CONS-001", source=SOURCE)
def test_deliver_policy(session: NatsSession) -> None:
    """By default deliver_policy is all."""
    _default(session, "deliver_policy")


@verifies("JS-CONS-002", source=SOURCE)
def test_ack_policy(session: NatsSession) -> None:
    """The ack_policy explicit is shown as it was given."""
    _default(session, "ack_policy")


@verifies("JS-CONS-003", source=SOURCE)
def test_ack_wait(session: NatsSession) -> None:
    """By default ack_wait is 30 s."""
    _default(session, "ack_wait")


@verifies("JS-CONS-004", source=SOURCE)
def test_max_deliver_is_unlimited(session: NatsSession) -> None:
    """By default max_deliver is -1."""
    _default(session, "max_deliver")


@verifies("JS-CONS-005", source=SOURCE)
def test_replay_policy(session: NatsSession) -> None:
    """By default replay_policy is instant."""
    _default(session, "replay_policy")


@verifies("JS-CONS-006", source=SOURCE)
def test_max_waiting(session: NatsSession) -> None:
    """By default max_waiting is 512."""
    _default(session, "max_waiting")


@verifies("JS-CONS-007", source=SOURCE)
def test_max_ack_pending(session: NatsSession) -> None:
    """By default max_ack_pending is 1000."""
    _default(session, "max_ack_pending")


@verifies("JS-CONS-008", source=SOURCE)
def test_num_replicas(session: NatsSession) -> None:
    """By default num_replicas is 0."""
    _default(session, "num_replicas")


@verifies("JS-CONS-009", source=SOURCE)
def test_durable_name(session: NatsSession) -> None:
    """A durable consumer shows its durable_name."""
    shows(session, _created(session), "config.durable_name", session.name("C"))


@verifies("JS-CONS-010", source="observed, nats-server 2.14.0 and 2.15.2")
def test_name(session: NatsSession) -> None:
    """The configuration of a durable consumer shows its name, too."""
    shows(session, _created(session), "config.name", session.name("C"))


@verifies("JS-CONS-011", source=SOURCE)
def test_nothing_else_is_in_force(session: NatsSession) -> None:
    """Every option that is shown is a known default, or says nothing."""
    config = field(_created(session), "config")
    for name in SHOWN:
        session.require(
            name in config, f"{name} is not shown", expected=f"config.{name}", actual=json.dumps(config)
        )
    others = {name: value for name, value in config.items() if value and name not in (*SHOWN, *LABELS)}
    if "max_batch" in others:
        shows_default(session, {"config": config}, "config.max_batch", 0)
    session.require(
        not others,
        "more is in force than was asked for",
        expected=f"no option but {', '.join(SHOWN)}",
        actual=json.dumps(others),
    )


@verifies("JS-CONS-012", source='JetStream Model Deep Dive, "Acknowledgement Models"')
def test_a_new_consumer_has_delivered_nothing(session: NatsSession) -> None:
    """A new consumer shows delivered 0/0 and ack_floor 0/0."""
    answer = _created(session)
    for name in ("delivered", "ack_floor"):
        shows(session, answer, f"{name}.consumer_seq", 0)
        shows(session, answer, f"{name}.stream_seq", 0)


@verifies("JS-CONS-030", source=SOURCE)
def test_a_negative_max_waiting_is_refused_or_not_set(session: NatsSession) -> None:
    """A negative max_waiting is refused with 10087, or the default takes its place."""
    answer = _created(session, max_waiting=-1)
    if ApiError.of(answer) is not None:
        refused(session, answer, 400, 10087, what="a negative max_waiting")
    else:
        shows(session, answer, "config.max_waiting", SHOWN["max_waiting"])


@verifies("JS-CONS-038", source=SOURCE)
def test_a_negative_max_batch_is_refused_or_not_set(session: NatsSession) -> None:
    """A negative max_batch is refused with 10114, or there is none."""
    answer = _created(session, max_batch=-1)
    if ApiError.of(answer) is not None:
        refused(session, answer, 400, 10114, what="a negative max_batch")
    else:
        fits(session, answer, "config.max_batch", lambda found: not found, "config.max_batch: none")


@verifies("JS-CONS-040", source=SOURCE)
def test_a_description_has_at_most_4096_bytes(session: NatsSession) -> None:
    """A description of 4097 bytes is refused with 10107, one of 4096 is not."""
    answer = _created(session, description="d" * (MOST_DESCRIPTION + 1))
    refused(session, answer, 400, 10107, what="a description of 4097 bytes")
    longest = "d" * MOST_DESCRIPTION
    shows(session, _created(session, description=longest), "config.description", longest)


@verifies("JS-CONS-045", source=SOURCE)
def test_more_replicas_than_the_stream_has_are_refused(session: NatsSession) -> None:
    """Three replicas of a consumer of a stream that has one are refused."""
    stream = session.stage.stream("S", [session.name("s")], num_replicas=1)
    answer = _created_on(session, stream, num_replicas=3)
    error = ApiError.of(answer)
    session.require(
        error is not None and (error.code, error.err_code) in REPLICAS_REFUSED,
        "three replicas are not refused like that",
        expected="code 500, err_code 10074; in a cluster code 400, err_code 10126",
        actual=json.dumps(answer),
    )


@verifies("JS-CONS-152", source='docs.nats.io, "Consumers", "MaxAckPending"')
def test_max_ack_pending_may_be_unlimited(session: NatsSession) -> None:
    """With max_ack_pending -1 more than the default of 1000 messages may wait for their acknowledgement."""
    subject, inbox = session.name("s"), session.inbox()
    stream = session.stage.stream("S", [subject])
    answer = _created_on(session, stream, max_ack_pending=-1)
    shows(session, answer, "config.max_ack_pending", -1)
    client = session.connect()
    client.send(*(Pub.make(subject) for _ in range(MANY)), Sub.make(inbox, 1))
    session.stage.await_stream(stream, messages=MANY)
    consumer = session.name("C")
    client.send(Pub.make(next_subject(stream, consumer), b"%d" % MANY, inbox))
    session.stage.expect_consumer(stream, consumer, num_ack_pending=MANY, num_pending=0)
    for _ in range(MANY):
        client.expect(Msg, subject=subject)


def _default(session: NatsSession, name: str) -> None:
    shows_default(session, _created(session), f"config.{name}", SHOWN[name])


def _created(session: NatsSession, **config: Any) -> Answer:
    """The answer to the creation of the consumer C of a new and empty stream."""
    return _created_on(session, session.stage.stream("S", [session.name("s")]), **config)


def _created_on(session: NatsSession, stream: str, **config: Any) -> Answer:
    """The same, of this stream."""
    consumer = session.name("C")
    body = {"stream_name": stream, "config": {"durable_name": consumer, "ack_policy": "explicit", **config}}
    return session.stage.answer("CONSUMER.DURABLE.CREATE", stream, consumer, body=body)
