"""What a session allows a check to do to the target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plumbline.conformance.nats.session import ForeignObjectError, NatsSession
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.wire.nats import HPub, Msg, Pub, Sub
from tests.conformance.streams import THEIRS, make_streams, stream_names


@pytest.fixture
def url() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as running:
        make_streams(running)
        yield running


@pytest.mark.parametrize(
    "request_of",
    [
        "STREAM.CREATE.ORDERS",
        "STREAM.UPDATE.ORDERS",
        "STREAM.DELETE.ORDERS",
        "STREAM.PURGE.ORDERS",
        "STREAM.MSG.DELETE.ORDERS",
        "CONSUMER.CREATE.ORDERS",
        "CONSUMER.CREATE.ORDERS.D.filter.subject",
        "CONSUMER.DURABLE.CREATE.ORDERS.D",
        "CONSUMER.DELETE.ORDERS.durable",
        "CONSUMER.MSG.NEXT.ORDERS.durable",
        "CONSUMER.PAUSE.ORDERS.durable",
    ],
)
def test_a_check_cannot_change_what_its_run_did_not_make(url: str, request_of: str) -> None:
    subject = f"$JS.API.{request_of}"
    with NatsSession(open_target(NatsUrl.parse(url), run="other")) as session:
        client = session.connect()
        for operation in (Pub.make(subject, b""), HPub.make(subject, [("A", "b")], b"")):
            with pytest.raises(
                ForeignObjectError,
                match="this object was not created by this run; use names from the session",
            ):
                client.send(operation)
        assert client.flush() == []
    assert stream_names(url) == sorted(THEIRS)


@pytest.mark.parametrize(
    "request_of", ["STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.ORDERS", "STREAM.MSG.GET.ORDERS", "INFO"]
)
def test_a_check_may_read_what_is_there(url: str, request_of: str) -> None:
    with NatsSession(open_target(NatsUrl.parse(url), run="other")) as session:
        client = session.connect()
        body = b'{"seq":1}' if request_of.startswith("STREAM.MSG") else b""
        client.send(Sub.make(session.inbox(), 1), Pub.make(f"$JS.API.{request_of}", body, session.inbox()))
        assert b'"error"' not in client.expect(Msg).payload


def test_session_deletes_only_its_objects(url: str) -> None:
    with NatsSession(open_target(NatsUrl.parse(url), run="other")) as session:
        name = session.stage.stream("ORDERS", [session.name("subject")])
        assert stream_names(url) == sorted([*THEIRS, name])
    assert stream_names(url) == sorted(THEIRS)


def test_deletions_are_sent_before_the_first_is_answered(url: str) -> None:
    with NatsSession(open_target(NatsUrl.parse(url), run="other")) as session:
        names = [session.stage.stream(label, [session.name(label.lower())]) for label in ("A", "B", "C")]
        before = len(session.wire)
        session.stage.delete_streams([names[0], session.name("never"), *names[1:]])
        lines = [
            line.direction
            for line in session.wire[before:]
            if " $JS.API" in line.text or "stream_delete" in line.text
        ]
        assert lines == [">"] * 4 + ["<"] * 4
        assert stream_names(url) == sorted(THEIRS)
