"""Names and numbers that no stream can have, where a trace cannot write them. ADR-6; observed."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import refused
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.wire.nats.jetstream import ApiError

NAMES = 'ADR-6, "Naming Rules"'
SOURCE = 'docs.nats.io, "JetStream wire API Reference"'
STREAM_MISMATCH = 10056
INVALID_CONFIG = 10052
LONGEST_NAME = 255
LONGEST_DESCRIPTION = 4096


@verifies("JS-API-037", source=NAMES)
def test_a_dot_is_refused(session: NatsSession) -> None:
    """A stream name with a dot is refused."""
    name = session.name("S")
    _refused(session, name, f"{name}.x", 400, STREAM_MISMATCH)


@verifies("JS-API-038", source=NAMES)
def test_wildcards_are_refused(session: NatsSession) -> None:
    """A stream name with an asterisk or a greater-than sign is refused."""
    for wildcard in "*>":
        name = session.name(f"S{wildcard}x")
        _refused(session, name, name, 500, INVALID_CONFIG)


@verifies("JS-API-039", source=NAMES)
def test_a_blank_is_refused(session: NatsSession) -> None:
    """A stream name with a blank is refused."""
    name = session.name("S")
    _refused(session, name, f"{name} x", 400, STREAM_MISMATCH)


@verifies("JS-API-040", source=NAMES)
def test_path_separators_are_refused(session: NatsSession) -> None:
    """A stream name with a slash or a backslash is refused."""
    for separator in "/\\":
        name = session.name(f"S{separator}x")
        _refused(session, name, name, 400, 10128)


@verifies("JS-API-041", source=NAMES)
def test_an_empty_name_is_refused(session: NatsSession) -> None:
    """An empty stream name in the body is refused."""
    _refused(session, session.name("S"), "", 400, STREAM_MISMATCH)


@verifies("JS-API-042", source=NAMES)
def test_a_long_name_is_refused(session: NatsSession) -> None:
    """A stream name of 256 characters is refused."""
    name = session.name("S").ljust(LONGEST_NAME + 1, "n")
    _refused(session, name, name, 500, INVALID_CONFIG)


@verifies("JS-API-049", source=SOURCE)
def test_replicas_need_a_cluster(session: NatsSession) -> None:
    """A server that is not part of a cluster refuses a stream of two replicas, or of three."""
    if "cluster" in session.target.info:
        raise Unsupported(f"INFO says that the server is part of cluster {session.target.info['cluster']!r}")
    for replicas in (2, 3):
        _refused(session, session.name("S"), session.name("S"), 500, 10074, num_replicas=replicas)


@verifies("JS-API-056", source="observed, nats-server 2.9.10 and 2.15")
def test_a_long_description_is_refused(session: NatsSession) -> None:
    """A description of 4097 bytes is refused."""
    description = "d" * (LONGEST_DESCRIPTION + 1)
    _refused(session, session.name("S"), session.name("S"), 500, INVALID_CONFIG, description=description)


@verifies("JS-API-046", source=SOURCE)
def test_an_unknown_key_is_ignored_or_refused(session: NatsSession) -> None:
    """A key that the server does not know is ignored, or refused as invalid JSON."""
    name = session.name("S")
    body = {"name": name, "subjects": [session.name("s")], "storage": "memory", "frobnicate": True}
    answer = session.stage.answer("STREAM.CREATE", name, body=body)
    if ApiError.of(answer) is None:
        session.count_observation()
    else:
        refused(session, answer, 400, 10025, what="an unknown key")


def _refused(
    session: NatsSession, in_subject: str, in_body: str, code: int, err_code: int, **config: object
) -> None:
    body = {"name": in_body, "subjects": [session.name("s")], "storage": "memory", **config}
    answer = session.stage.answer("STREAM.CREATE", in_subject, body=body)
    what = ", ".join([f"the stream name {in_body[:40]!r}", *config])
    refused(session, answer, code, err_code, what=what)
