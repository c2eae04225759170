"""What JetStream grants an account: streams, consumers, bytes. One by one, since all use one account.

docs.nats.io, "Configuration Reference", "accounts.jetstream".
"""

from __future__ import annotations

from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import Answer, accepted, refused, shows
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Untestable

SOURCE = 'docs.nats.io, "Configuration Reference", "accounts.jetstream"'
SHARES = "account limits"
# As the variant has them.
STREAMS, CONSUMERS, BYTES_OF_STREAM, BYTES, ACKS_PENDING = 3, 2, 10240, 20480, 100
INSUFFICIENT = {"memory": 10028, "file": 10047}  # err_code by storage


@verifies("JS-API-202", source=SOURCE, variant="account-limits", shares=SHARES)
def test_an_account_has_so_many_streams(session: NatsSession) -> None:
    """A stream more than max_streams is refused, until another one is deleted."""
    _require_empty(session)
    for number in range(STREAMS):
        accepted(_create(session, f"S{number}"), f"stream {number + 1} of {STREAMS}")
    refused(session, _create(session, "MORE"), 400, 10027, what="a stream more than max_streams")
    missing = session.stage.answer("STREAM.INFO", session.name("MORE"))
    refused(session, missing, 404, 10059, what="the info of a stream that was refused")
    session.stage.api("STREAM.DELETE", session.name("S0"))
    accepted(_create(session, "MORE"), "a stream after another one was deleted")


@verifies("JS-API-203", source=SOURCE, variant="account-limits", shares=SHARES)
def test_a_stream_of_an_account_has_so_many_consumers(session: NatsSession) -> None:
    """A consumer more than max_consumers is refused, on each stream for itself."""
    _require_empty(session)
    for label in ("S", "OTHER"):
        accepted(_create(session, label), "a stream")
        for number in range(CONSUMERS):
            accepted(_consume(session, label, f"C{number}"), f"consumer {number + 1} of {CONSUMERS}")
        more = _consume(session, label, "MORE")
        refused(session, more, 400, 10026, what="a consumer more than max_consumers")
    session.stage.api("CONSUMER.DELETE", session.name("S"), session.name("C0"))
    accepted(_consume(session, "S", "MORE"), "a consumer after another one was deleted")


@verifies("JS-API-204", source=SOURCE, variant="account-limits", shares=SHARES)
def test_max_bytes_may_be_required(session: NatsSession) -> None:
    """A stream without max_bytes is refused, new or updated, where the account requires them."""
    _require_empty(session)
    for none in (-1, 0):
        refused(session, _create(session, "S", max_bytes=none), 400, 10113, what="a stream without max_bytes")
    accepted(_create(session, "S", max_bytes=4096), "a stream with max_bytes")
    updated = _create(session, "S", verb="STREAM.UPDATE", max_bytes=-1)
    refused(session, updated, 400, 10113, what="an update without max_bytes")
    shows(session, session.stage.stream_info(session.name("S")), "config.max_bytes", 4096)


@verifies("JS-API-205", source=SOURCE, variant="account-limits", shares=SHARES)
def test_a_stream_has_so_many_bytes(session: NatsSession) -> None:
    """A stream with more max_bytes than the account grants each one is refused, new or updated."""
    _require_empty(session)
    for storage in INSUFFICIENT:
        large = _create(session, storage, storage=storage, max_bytes=BYTES_OF_STREAM + 1)
        refused(session, large, 400, 10122, what=f"a stream in {storage} with a byte too many")
        largest = _create(session, storage, storage=storage, max_bytes=BYTES_OF_STREAM)
        accepted(largest, f"a stream in {storage} with as many bytes as the account grants")
        updated = _create(
            session, storage, verb="STREAM.UPDATE", storage=storage, max_bytes=BYTES_OF_STREAM + 1
        )
        refused(session, updated, 400, 10122, what=f"an update in {storage} to a byte too many")
        shows(session, session.stage.stream_info(session.name(storage)), "config.max_bytes", BYTES_OF_STREAM)


@verifies("JS-API-206", source=SOURCE, variant="account-limits", shares=SHARES)
def test_the_streams_of_an_account_have_so_many_bytes(session: NatsSession) -> None:
    """Streams whose max_bytes together are more than the account grants their storage are refused."""
    _require_empty(session)
    for storage, err_code in INSUFFICIENT.items():
        other = "file" if storage == "memory" else "memory"
        for label in ("S", "OTHER"):
            accepted(_create(session, label, storage=storage, max_bytes=BYTES // 2), f"half of the {storage}")
        more = _create(session, "MORE", storage=storage, max_bytes=1)
        refused(session, more, 500, err_code, what=f"a stream when all {storage} is reserved")
        elsewhere = _create(session, "MORE", storage=other, max_bytes=BYTES // 2)
        accepted(elsewhere, f"a stream in {other} when all {storage} is reserved")
        session.stage.delete_streams([session.name(label) for label in ("S", "OTHER", "MORE")])


@verifies("JS-API-207", source=SOURCE, variant="account-limits", shares=SHARES)
def test_a_consumer_has_so_many_acks_pending(session: NatsSession) -> None:
    """A consumer with more max_ack_pending than the account grants is refused; one without gets as many."""
    _require_empty(session)
    accepted(_create(session, "S"), "a stream")
    many = _consume(session, "S", "MANY", max_ack_pending=ACKS_PENDING + 1)
    refused(session, many, 400, 10121, what="a consumer with max_ack_pending above the account's")
    most = _consume(session, "S", "MOST", max_ack_pending=ACKS_PENDING)
    shows(session, most, "config.max_ack_pending", ACKS_PENDING)
    shows(session, _consume(session, "S", "DEFAULT"), "config.max_ack_pending", ACKS_PENDING)


@verifies("JS-API-208", source=SOURCE, variant="account-limits", shares=SHARES)
def test_the_account_info_shows_the_limits(session: NatsSession) -> None:
    """The limits of the account info are those of the configuration."""
    answer = session.stage.answer("INFO")
    limits = {
        "max_memory": BYTES,
        "max_storage": BYTES,
        "max_streams": STREAMS,
        "max_consumers": CONSUMERS,
        "max_ack_pending": ACKS_PENDING,
        "memory_max_stream_bytes": BYTES_OF_STREAM,
        "storage_max_stream_bytes": BYTES_OF_STREAM,
        "max_bytes_required": True,
    }
    for name, value in limits.items():
        shows(session, answer, f"limits.{name}", value)


def _require_empty(session: NatsSession) -> None:
    """Raises ``Untestable`` if the account has streams already: another run's, which count."""
    streams = session.stage.api("INFO").get("streams")
    if streams != 0:
        raise Untestable("the account of this variant has streams of others", actual=f"streams: {streams}")


def _create(session: NatsSession, label: str, *, verb: str = "STREAM.CREATE", **config: Any) -> Answer:
    name = session.name(label)
    body = {"name": name, "subjects": [name], "storage": "memory", "max_bytes": 4096, **config}
    return session.stage.answer(verb, name, body=body)


def _consume(session: NatsSession, stream: str, label: str, **config: Any) -> Answer:
    names = session.name(stream), session.name(label)
    body = {"stream_name": names[0], "config": {"durable_name": names[1], "ack_policy": "explicit", **config}}
    return session.stage.answer("CONSUMER.DURABLE.CREATE", *names, body=body)
