"""In a cluster a node may learn of a stream, or of a consumer, after the client has: it is asked again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Untestable
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.wire.nats import HMsg, Info, Msg, Operation, Pub, Sub
from tests.zoo.relay import Rewrite, relay

UNKNOWN = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}


def test_a_consumer_is_created_once_its_stream_is_known() -> None:
    with session_with(late_node(cluster="three")) as session:
        stream = session.stage.stream("ORDERS", [session.name("subject")])
        assert session.stage.consumer(stream, "D") == session.name("D")


def test_without_a_cluster_an_unknown_stream_is_an_answer() -> None:
    with session_with(late_node(cluster="")) as session:
        stream = session.stage.stream("ORDERS", [session.name("subject")])
        with pytest.raises(Untestable, match="was refused: 404 stream not found"):
            session.stage.consumer(stream, "D")


def test_a_pull_request_is_sent_again_for_a_new_consumer() -> None:
    with session_with(node_without_interest(cluster="three")) as session:
        assert pull_status(session, session.name("D")) == 404


def test_without_a_cluster_no_interest_is_an_answer() -> None:
    with session_with(node_without_interest(cluster="")) as session:
        assert pull_status(session, session.name("D")) == 503


def test_no_interest_is_an_answer_for_a_consumer_that_is_deleted() -> None:
    with session_with(node_without_interest(cluster="three")) as session:

        def delete(stream: str) -> None:
            session.stage.api("CONSUMER.DELETE", stream, session.name("D"))

        assert pull_status(session, session.name("D"), before=delete) == 503


def test_a_message_is_sent_again_for_a_stream_that_has_just_got_its_subject() -> None:
    with session_with(node_without_the_stream(cluster="three")) as session:
        assert published(session, session.name("subject")) is None


def test_without_a_cluster_no_interest_in_a_message_is_an_answer() -> None:
    with session_with(node_without_the_stream(cluster="")) as session:
        assert published(session, session.name("subject")) == 503


def test_no_interest_is_an_answer_for_a_subject_that_no_stream_has() -> None:
    with session_with(node_without_the_stream(cluster="three")) as session:
        assert published(session, session.name("other")) == 503


@pytest.mark.parametrize("subjects", [["$other"], ["$subject", "a..b"]])
def test_no_interest_is_an_answer_after_another_update(subjects: list[str]) -> None:
    """It takes the subject from the stream, or is refused: then what was there before is long known."""
    with session_with(node_without_the_stream(cluster="three")) as session:

        def update(stream: str) -> None:
            names = [session.name(one[1:]) if one.startswith("$") else one for one in subjects]
            session.stage.answer("STREAM.UPDATE", stream, body={"name": stream, "subjects": names})

        assert published(session, session.name("subject"), before=update) == 503


def published(
    session: NatsSession, subject: str, before: Callable[[str], None] = lambda stream: None
) -> int | None:
    """The status of the answer to a message, right after the stream was created; None for a PubAck."""
    stream = session.stage.stream("ORDERS", [session.name("subject")])
    before(stream)
    client, reply = session.connect(), session.inbox("reply")
    client.send(Sub.make(reply, 1), Pub.make(subject, b"m", reply))
    return status_code(client.arrival(2.0, "an answer").operation)


def node_without_the_stream(cluster: str) -> Callable[[], Rewrite]:
    """Answers the first two messages of each connection as if no stream listened on their subject."""

    def change(operation: Operation) -> bytes | None:
        if not isinstance(operation, Msg) or not operation.payload.startswith(b'{"stream":'):
            return None
        block = b"NATS/1.0 503\r\n\r\n"
        head = f"HMSG {operation.subject} {operation.sid} {len(block)} {len(block)}\r\n"
        return head.encode() + block + b"\r\n"

    return node_that_learns(cluster, 2, change)


def pull_status(
    session: NatsSession, consumer: str, before: Callable[[str], None] = lambda stream: None
) -> int | None:
    """Of the answer to a pull request with no_wait, right after the consumer was created."""
    stream = session.stage.stream("ORDERS", [session.name("subject")])
    session.stage.consumer(stream, "D")
    before(stream)
    client, reply = session.connect(), session.inbox("reply")
    pull = Pub.make(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b'{"no_wait":true}', reply)
    client.send(Sub.make(reply, 1), pull)
    return status_code(client.arrival(2.0, "a status").operation)


def node_without_interest(cluster: str) -> Callable[[], Rewrite]:
    """Answers the first two pull requests of each connection as if it knew no such consumer."""

    def change(operation: Operation) -> bytes | None:
        if not isinstance(operation, HMsg) or status_code(operation) != 404:
            return None
        return operation.raw.replace(b"NATS/1.0 404 No Messages", b"NATS/1.0 503            ")

    return node_that_learns(cluster, 2, change)


def late_node(cluster: str) -> Callable[[], Rewrite]:
    """Answers the first three requests for a consumer of each connection as if it did not know the stream."""

    def change(operation: Operation) -> bytes | None:
        if not isinstance(operation, Msg) or b"consumer_create_response" not in operation.payload:
            return None
        return Msg.make(operation.subject, operation.sid, json.dumps(UNKNOWN).encode()).raw

    return node_that_learns(cluster, 3, change)


def node_that_learns(
    cluster: str, times: int, change: Callable[[Operation], bytes | None]
) -> Callable[[], Rewrite]:
    """On each connection ``change`` gives so many other answers; None is no other."""

    def of_one_connection() -> Rewrite:
        left = times

        def rewrite(operation: Operation) -> bytes:
            nonlocal left
            if isinstance(operation, Info) and cluster:
                return Info.make({**operation.fields, "cluster": cluster}).raw
            other = change(operation) if left else None
            left -= other is not None
            return operation.raw if other is None else other

        return rewrite

    return of_one_connection


@contextmanager
def session_with(rewrites: Callable[[], Rewrite]) -> Iterator[NatsSession]:
    with NatsBroker.in_thread(jetstream=True) as url:
        server = NatsUrl.parse(url)
        with (
            relay("nats", (server.host, server.port), rewrites) as address,
            NatsSession(open_target(NatsUrl.parse(f"nats://{address}"))) as session,
        ):
            yield session
