"""Consumers where a trace does not reach: strange names, and answers of which there are two. ADR-6."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import Answer, refused
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.wire.nats.jetstream import ApiError

NAMES = 'ADR-6, "Naming Rules"'
LONGEST_NAME = 255


@verifies("JS-API-141", source=NAMES)
def test_wildcards_in_a_durable_name_are_refused(session: NatsSession) -> None:
    """A durable name with an asterisk or a greater-than sign is refused."""
    stream = session.stage.stream("S", [session.name("s")])
    for wildcard in "*>":
        answer = _create(session, stream, session.name(f"C{wildcard}x"))
        error = ApiError.of(answer)
        invalid = error is not None and error.code >= 500
        code, err_code = (500, 10052) if invalid else (400, 10103)
        refused(session, answer, code, err_code, what=f"the durable name C{wildcard}x")


@verifies("JS-API-142", source=NAMES)
def test_path_separators_in_a_consumer_name_are_refused(session: NatsSession) -> None:
    """A consumer name with a slash or a backslash is refused."""
    stream = session.stage.stream("S", [session.name("s")])
    for separator in "/\\":
        answer = _create(session, stream, session.name(f"C{separator}x"))
        refused(session, answer, 400, 10127, what=f"the durable name C{separator}x")


@verifies("JS-API-143", source=NAMES)
def test_a_long_consumer_name_is_refused(session: NatsSession) -> None:
    """A consumer name of 256 characters is refused."""
    stream = session.stage.stream("S", [session.name("s")])
    answer = _create(session, stream, session.name("C").ljust(LONGEST_NAME + 1, "n"))
    refused(session, answer, 400, 10102, what="a durable name of 256 characters")


@verifies("JS-API-156", source='ADR-13, "Pull Subscribe internals"')
def test_a_consumer_without_cluster_shows_none(session: NatsSession) -> None:
    """On a server that is not part of a cluster the info of a consumer has no cluster."""
    if "cluster" in session.target.info:
        raise Unsupported(f"INFO says that the server is part of cluster {session.target.info['cluster']!r}")
    stream = session.stage.stream("S", [session.name("s")])
    info = session.stage.consumer_info(stream, session.stage.consumer(stream, "C"))
    session.require(
        "cluster" not in info,
        "the info has a cluster",
        expected="no cluster",
        actual=str(info.get("cluster")),
    )


@verifies("JS-API-160", source='docs.nats.io, "JetStream wire API Reference"')
def test_a_filter_of_another_subject_is_accepted_or_refused(session: NatsSession) -> None:
    """A filter_subject that no subject of the stream matches is accepted, or refused with 10093."""
    stream = session.stage.stream("S", [session.name("s")])
    answer = _create(session, stream, session.name("C"), filter_subject=session.name("other"))
    if ApiError.of(answer) is None:
        session.count_observation()
    else:
        refused(session, answer, 400, 10093, what="a filter_subject outside the stream's subjects")


def _create(session: NatsSession, stream: str, name: str, **config: object) -> Answer:
    body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
    return session.stage.answer("CONSUMER.DURABLE.CREATE", stream, name, body=body)
