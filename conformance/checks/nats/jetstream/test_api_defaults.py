"""What a stream has that was created with a name and subjects alone. docs.nats.io, "Streams"."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import fits, shows, shows_default
from plumbline.conformance.nats.session import NatsSession

SOURCE = 'docs.nats.io, "JetStream wire API Reference"'


@verifies("JS-API-010", source=SOURCE)
def test_retention(session: NatsSession) -> None:
    """By default retention is limits."""
    _default(session, "retention", "limits")


@verifies("JS-API-011", source=SOURCE)
def test_storage(session: NatsSession) -> None:
    """By default storage is file."""
    _default(session, "storage", "file")


@verifies("JS-API-012", source=SOURCE)
def test_discard(session: NatsSession) -> None:
    """By default discard is old."""
    _default(session, "discard", "old")


@verifies("JS-API-013", source=SOURCE)
def test_max_consumers_is_unlimited(session: NatsSession) -> None:
    """By default max_consumers is -1."""
    _default(session, "max_consumers", -1)


@verifies("JS-API-014", source=SOURCE)
def test_max_msgs_is_unlimited(session: NatsSession) -> None:
    """By default max_msgs is -1."""
    _default(session, "max_msgs", -1)


@verifies("JS-API-015", source=SOURCE)
def test_max_bytes_is_unlimited(session: NatsSession) -> None:
    """By default max_bytes is -1."""
    _default(session, "max_bytes", -1)


@verifies("JS-API-016", source=SOURCE)
def test_max_age(session: NatsSession) -> None:
    """By default max_age is 0."""
    _default(session, "max_age", 0)


@verifies("JS-API-017", source=SOURCE)
def test_max_msgs_per_subject_is_unlimited(session: NatsSession) -> None:
    """By default max_msgs_per_subject is -1."""
    _default(session, "max_msgs_per_subject", -1)


@verifies("JS-API-018", source=SOURCE)
def test_max_msg_size_is_unlimited(session: NatsSession) -> None:
    """By default max_msg_size is -1."""
    _default(session, "max_msg_size", -1)


@verifies("JS-API-019", source=SOURCE)
def test_num_replicas(session: NatsSession) -> None:
    """By default num_replicas is 1."""
    _default(session, "num_replicas", 1)


@verifies("JS-API-020", source=SOURCE)
def test_duplicate_window(session: NatsSession) -> None:
    """By default duplicate_window is two minutes."""
    _default(session, "duplicate_window", 120_000_000_000)


@verifies("JS-API-021", source=SOURCE)
def test_sealed(session: NatsSession) -> None:
    """By default sealed is off."""
    _default(session, "sealed", False)


@verifies("JS-API-022", source=SOURCE)
def test_deny_delete(session: NatsSession) -> None:
    """By default deny_delete is off."""
    _default(session, "deny_delete", False)


@verifies("JS-API-023", source=SOURCE)
def test_deny_purge(session: NatsSession) -> None:
    """By default deny_purge is off."""
    _default(session, "deny_purge", False)


@verifies("JS-API-024", source=SOURCE)
def test_allow_rollup_hdrs(session: NatsSession) -> None:
    """By default allow_rollup_hdrs is off."""
    _default(session, "allow_rollup_hdrs", False)


@verifies("JS-API-025", source=SOURCE)
def test_allow_direct(session: NatsSession) -> None:
    """By default allow_direct is off."""
    _default(session, "allow_direct", False)


@verifies("JS-API-026", source=SOURCE)
def test_mirror_direct(session: NatsSession) -> None:
    """By default mirror_direct is off."""
    _default(session, "mirror_direct", False)


@verifies("JS-API-009", source=SOURCE)
def test_creation_is_answered_with_the_stream(session: NatsSession) -> None:
    """STREAM.CREATE is answered with the new stream."""
    stream, subject = session.name("S"), session.name("s")
    body = {"name": stream, "subjects": [subject], "storage": "memory"}
    answer = session.stage.answer("STREAM.CREATE", stream, body=body)
    shows(session, answer, "type", "io.nats.jetstream.api.v1.stream_create_response")
    shows(session, answer, "config.name", stream)
    shows(session, answer, "config.subjects", [subject])
    shows(session, answer, "state.messages", 0)
    shows(session, answer, "did_create", True)
    fits(session, answer, "created", lambda found: isinstance(found, str), "created: a time")


def _default(session: NatsSession, name: str, value: object) -> None:
    stream = session.name("S")
    body: dict[str, object] = {"name": stream, "subjects": [session.name("s")]}
    if name != "storage":
        body["storage"] = "memory"
    answer = session.stage.answer("STREAM.CREATE", stream, body=body)
    shows_default(session, answer, f"config.{name}", value)
