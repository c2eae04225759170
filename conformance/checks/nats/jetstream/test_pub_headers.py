"""Publish headers whose answer may be one of two, that need polling, or are large. The deep dive; ADR-1."""

from __future__ import annotations

import json
import time
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import object_in, shows_default
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import HMsg, HPub, Msg, Sub

WINDOW_NS = 400_000_000
FORGOTTEN_WITHIN_S = 2.0  # from when the window has passed; servers forget by a timer
TOO_LARGE = 65 * 1024
WRONG_LAST_SEQUENCE, ROLLUP_FAILED, HEADER_TOO_LARGE = 10071, 10111, 10097


@verifies("JS-PUB-007", source='JetStream Model Deep Dive, "Message Deduplication"')
def test_duplicates_are_tracked_for_two_minutes_by_default(session: NatsSession) -> None:
    """The duplicate_window of a stream that says nothing of it is two minutes."""
    stream = session.stage.stream("ORDERS", [session.name("orders")])
    shows_default(session, session.stage.stream_info(stream), "config.duplicate_window", 120_000_000_000)


@verifies("JS-PUB-007", source='JetStream Model Deep Dive, "Message Deduplication"')
def test_id_is_accepted_again_after_the_window(session: NatsSession) -> None:
    """A Nats-Msg-Id is accepted again once duplicate_window has passed, and not before; by default it is not
    forgotten by then."""
    subject, lasting = session.name("orders"), session.name("lasting")
    stream = session.stage.stream("ORDERS", [subject], duplicate_window=WINDOW_NS)
    session.stage.stream("LASTING", [lasting])
    session.stage.publish(lasting, b"hello1", [("Nats-Msg-Id", "1")])
    began = time.monotonic()
    session.stage.publish(subject, b"hello1", [("Nats-Msg-Id", "1")])
    limit = time.monotonic() + WINDOW_NS / 1e9 + FORGOTTEN_WITHIN_S + session.target.slack_s
    while (answer := _publish(session, subject, "Nats-Msg-Id", "1")).get("duplicate"):
        session.require(
            time.monotonic() < limit,
            "the id is still a duplicate",
            expected=f"a new sequence within {FORGOTTEN_WITHIN_S:g} s after a window of {WINDOW_NS} ns",
            actual=json.dumps(answer),
        )
        session.pause(0.02)
    took = time.monotonic() - began
    _stored(session, answer, seq=2)
    session.require(
        took >= WINDOW_NS / 1e9,
        "the id was forgotten too early",
        expected=f"a duplicate for {WINDOW_NS / 1e9:g} s",
        actual=f"stored as new after {took:.3f} s",
    )
    session.stage.expect_stream(stream, messages=2, last_seq=2)
    kept = _publish(session, lasting, "Nats-Msg-Id", "1")
    session.require(
        kept.get("duplicate") is True and kept.get("seq") == 1,
        "with the default window the id is forgotten",
        expected="duplicate true and seq 1",
        actual=json.dumps(kept),
    )


@verifies("JS-PUB-022", source="observed, nats-server 2.9.10 and 2.15")
def test_duplicate_with_a_wrong_expectation(session: NatsSession) -> None:
    """A duplicate with a wrong Nats-Expected-Last-Sequence is not stored, whatever the answer names."""
    subject = session.name("orders")
    stream = session.stage.stream("ORDERS", [subject])
    session.stage.publish(subject, b"m1", [("Nats-Msg-Id", "m1")])
    session.stage.publish(subject, b"m2")
    headers = [("Nats-Msg-Id", "m1"), ("Nats-Expected-Last-Sequence", "1")]
    answer = _answer(session.stage.request(subject, b"x", headers))
    is_duplicate = answer.get("duplicate") is True and answer.get("seq") == 1
    session.require(
        is_duplicate or _err_code(answer) == WRONG_LAST_SEQUENCE,
        "the answer names neither of its faults",
        expected=f"duplicate true and seq 1, or err_code {WRONG_LAST_SEQUENCE}",
        actual=json.dumps(answer),
    )
    session.stage.expect_stream(stream, messages=2, last_seq=2)


@verifies("JS-PUB-024", source="observed, nats-server 2.9.10 and 2.15")
def test_header_block_over_64_kib(session: NatsSession) -> None:
    """A header block larger than 64 KiB is refused."""
    subject = session.name("orders")
    stream = session.stage.stream("ORDERS", [subject])
    answer = _publish(session, subject, "K", "v" * TOO_LARGE)
    _refused(session, answer, HEADER_TOO_LARGE)
    session.stage.expect_stream(stream, messages=0, last_seq=0)


@verifies("JS-PUB-031", source="observed, nats-server 2.9.10 and 2.15")
def test_the_puback_names_the_domain_of_info(session: NatsSession) -> None:
    """The PubAck names the JetStream domain that INFO announces, and none if there is none."""
    subject = session.name("orders")
    session.stage.stream("ORDERS", [subject])
    domain = session.target.info.get("domain") or None
    found = session.stage.publish(subject).get("domain")
    session.require(
        found == domain, "another domain", expected=f"domain: {domain or 'none'}", actual=f"domain: {found}"
    )


@verifies("JS-PUB-028", source="observed, nats-server 2.9.10 and 2.15")
def test_unknown_rollup(session: NatsSession) -> None:
    """A Nats-Rollup that is neither sub nor all is not stored, and answered with 10111 or not at all."""
    subject, reply = session.name("orders"), session.inbox("reply")
    stream = session.stage.stream("ORDERS", [subject], allow_rollup_hdrs=True)
    session.stage.publish(subject, b"m1")
    client = session.connect()
    client.send(
        Sub.make(f"{reply}.*", 1),
        HPub.make(subject, [("Nats-Rollup", "zz")], b"x", f"{reply}.unknown"),
        HPub.make(subject, [("Nats-Rollup", "sub")], b"x", f"{reply}.known"),
    )
    # Both answers come from one stream, in the order of the publishes.
    first = client.expect(Msg)
    if first.subject.endswith(".unknown"):
        _refused(session, _answer(first), ROLLUP_FAILED)
        first = client.expect(Msg)
    _stored(session, _answer(first), seq=2)
    session.stage.expect_stream(stream, messages=1, first_seq=2, last_seq=2)


def _publish(session: NatsSession, subject: str, name: str, value: str) -> dict[str, Any]:
    return _answer(session.stage.request(subject, b"x", [(name, value)]))


def _answer(operation: Msg | HMsg) -> dict[str, Any]:
    return object_in(operation, "a PubAck")


def _err_code(answer: dict[str, Any]) -> object:
    error = answer.get("error")
    return error.get("err_code") if isinstance(error, dict) else None


def _stored(session: NatsSession, answer: dict[str, Any], *, seq: int) -> None:
    session.require(
        answer.get("seq") == seq and not answer.get("duplicate") and "error" not in answer,
        "the message was not stored as new",
        expected=f"a PubAck with seq {seq}",
        actual=json.dumps(answer),
    )


def _refused(session: NatsSession, answer: dict[str, Any], err_code: int) -> None:
    session.require(
        _err_code(answer) == err_code,
        "the message was not refused as it should be",
        expected=f"err_code {err_code}",
        actual=json.dumps(answer),
    )
