"""Defects in the grammar: malformed input that is forgiven, and legal input that is not understood."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plumbline.reference_broker.nats import subjects
from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Connect, Decoder, HPub, Limits, Operation, Ping, Pub, Sender

LARGEST_HEADERS = 64 * 1024


def _forgive(
    broker: Broker, when: Callable[[Connection, ProtocolError], bool], text: str | None = None
) -> None:
    """An error of one kind does not end the connection; what follows it in its segment is lost."""
    original = broker.malformed

    def malformed(connection: Connection, error: ProtocolError) -> None:
        if connection.awaiting_auth or not when(connection, error):
            original(connection, error)
            return
        if text is not None:
            broker.complain(connection, text)
        connection.decoder = broker.make_decoder()

    replace(broker, "malformed", malformed)


def _fields(error: ProtocolError) -> Sequence[bytes]:
    """The control line that was wrong, as far as the excerpt shows it."""
    return error.excerpt.split(b"\n")[0].split() or [b""]


def _verb(error: ProtocolError) -> bytes:
    return _fields(error)[0].upper()


def _has_wrong_fields(error: ProtocolError, verb: bytes) -> bool:
    """Whether an operation has too few fields, or too many."""
    return error.kind is ErrorKind.ARGUMENTS and _verb(error) == verb


@defect(
    "unknown-operation-does-not-close",
    breaks=("CORE-024",),
    summary="After an unknown operation name the connection stays open.",
)
def _(broker: Broker) -> None:
    def when(connection: Connection, error: ProtocolError) -> bool:
        return (
            error.kind is ErrorKind.UNKNOWN_OPERATION and connection.connected and error.excerpt[:1].isalpha()
        )

    _forgive(broker, when, "Unknown Protocol Operation")


@defect("empty-line-is-ignored", breaks=("CORE-023",), summary="An empty line is no error.")
def _(broker: Broker) -> None:
    _forgive(
        broker,
        lambda connection, error: (
            error.kind is ErrorKind.UNKNOWN_OPERATION and error.excerpt.startswith(b"\r\n")
        ),
    )


@defect(
    "garbage-before-connect-is-cut-off-in-silence",
    breaks=("CORE-025",),
    summary="Who begins with something else than NATS gets no -ERR.",
)
def _(broker: Broker) -> None:
    original = broker.malformed

    def malformed(connection: Connection, error: ProtocolError) -> None:
        if error.kind is ErrorKind.UNKNOWN_OPERATION and not connection.connected:
            broker.refuse(connection, None)
        else:
            original(connection, error)

    replace(broker, "malformed", malformed)


@defect("sub-without-sid-is-ignored", breaks=("CORE-026",), summary="A SUB without a sid is ignored.")
def _(broker: Broker) -> None:
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"SUB") and len(_fields(error)) == 2)


@defect(
    "sub-with-too-many-fields-is-ignored", breaks=("CORE-027",), summary="A SUB with four fields is ignored."
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"SUB") and len(_fields(error)) > 4)


@defect(
    "pub-with-a-word-for-a-size-is-ignored",
    breaks=("CORE-028",),
    summary="A PUB whose size is no number is ignored.",
)
def _(broker: Broker) -> None:
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error) == b"PUB" and error.kind is ErrorKind.SIZE and _fields(error)[-1].isalpha()
        ),
    )


@defect(
    "pub-with-a-negative-size-is-ignored",
    breaks=("CORE-029",),
    summary="A PUB with a negative size is ignored.",
)
def _(broker: Broker) -> None:
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error) == b"PUB" and error.kind is ErrorKind.SIZE and _fields(error)[-1].startswith(b"-")
        ),
    )


@defect("pub-without-size-is-ignored", breaks=("CORE-030",), summary="A PUB without a size is ignored.")
def _(broker: Broker) -> None:
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"PUB"))


@defect(
    "too-long-payload-is-ignored",
    breaks=("CORE-031",),
    summary="A PUB whose payload does not end where it was announced is ignored.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda connection, error: error.kind is ErrorKind.PAYLOAD_END)


@defect(
    "hpub-with-more-header-than-all-is-ignored",
    breaks=("CORE-032",),
    summary="An HPUB whose header size is larger than its total size is ignored.",
)
def _(broker: Broker) -> None:
    _forgive(broker, lambda connection, error: _verb(error) == b"HPUB" and error.kind is ErrorKind.SIZE)


@defect(
    "malformed-connect-is-ignored",
    breaks=("CORE-034",),
    summary="A CONNECT whose argument is no JSON object is ignored.",
)
def _(broker: Broker) -> None:
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error).startswith(b"CONNECT") and error.kind in (ErrorKind.JSON, ErrorKind.ARGUMENTS)
        ),
    )


@defect(
    "oversized-pub-does-not-close",
    breaks=("CORE-047",),
    summary="After a PUB larger than max_payload the connection stays open.",
)
def _(broker: Broker) -> None:
    _forgive(
        broker,
        lambda connection, error: error.kind is ErrorKind.PAYLOAD_SIZE and _verb(error) == b"PUB",
        "Maximum Payload Violation",
    )


@defect("largest-payload-is-refused", breaks=("CORE-048",), summary="max_payload is one byte less than told.")
def _(broker: Broker) -> None:
    config = broker.config
    limits = Limits(config.max_control_line, config.max_payload - 1)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


@defect(
    "headers-do-not-count-as-payload",
    breaks=("CORE-049",),
    summary="Only the payload of an HPUB counts against max_payload.",
)
def _(broker: Broker) -> None:
    config = broker.config
    limits = Limits(config.max_control_line, config.max_payload + LARGEST_HEADERS)
    published, published_with_headers = broker.published, broker.published_with_headers

    def refused(connection: Connection, operation: Pub | HPub) -> bool:
        too_large = len(operation.payload) > config.max_payload
        if too_large:
            broker.refuse(connection, "Maximum Payload Violation")
        return too_large

    def pub(connection: Connection, operation: Pub, now: int) -> None:
        if not refused(connection, operation):
            published(connection, operation, now)

    def hpub(connection: Connection, operation: HPub, now: int) -> None:
        if not refused(connection, operation):
            published_with_headers(connection, operation, now)

    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))
    replace(broker, "published", pub)
    replace(broker, "published_with_headers", hpub)


@defect(
    "control-line-has-no-limit", breaks=("CORE-050",), summary="A control line may be as long as it likes."
)
def _(broker: Broker) -> None:
    limits = Limits(max_control_line=1 << 30, max_payload=broker.config.max_payload)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


@defect("control-line-limit-is-1024", breaks=("CORE-106",), summary="A control line may have 1024 bytes.")
def _(broker: Broker) -> None:
    limits = Limits(min(broker.config.max_control_line, 1024), broker.config.max_payload)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


def _look_first(broker: Broker, is_legal: Callable[[Operation], bool]) -> None:
    """Refuse operations that are legal; CONNECT and PING always are."""
    dispatch, published = broker.dispatch, broker.published

    def looking(connection: Connection, operation: Operation, now: int) -> None:
        if isinstance(operation, Ping | Connect) or is_legal(operation):
            dispatch(connection, operation, now)
        else:
            broker.refuse(connection, "Unknown Protocol Operation")

    def looking_at_pub(connection: Connection, operation: Pub, now: int) -> None:
        if is_legal(operation):
            published(connection, operation, now)
        elif not connection.closing:
            broker.refuse(connection, "Unknown Protocol Operation")

    replace(broker, "dispatch", looking)
    replace(broker, "published", looking_at_pub)


@defect(
    "operation-names-are-case-sensitive",
    breaks=("CORE-019",),
    summary="Operation names but PING and CONNECT must be in upper case.",
)
def _(broker: Broker) -> None:
    _look_first(broker, lambda operation: operation.raw.startswith(operation.verb.encode()))


@defect(
    "one-blank-separates-fields",
    breaks=("CORE-020",),
    summary="Tabs, and more than one blank, do not separate fields.",
)
def _(broker: Broker) -> None:
    def is_legal(operation: Operation) -> bool:
        line = operation.raw[: operation.head]
        return b"\t" not in line and b"  " not in line

    _look_first(broker, is_legal)


@defect("empty-token-is-valid", breaks=("CORE-037",), summary="SUB foo..bar is valid.")
def _(broker: Broker) -> None:
    _accept_subjects(broker, lambda subject: b".." in subject)


@defect("trailing-dot-is-valid", breaks=("CORE-038",), summary="SUB foo. is valid.")
def _(broker: Broker) -> None:
    _accept_subjects(broker, lambda subject: subject.endswith(b"."))


@defect("leading-dot-is-valid", breaks=("CORE-039",), summary="SUB .foo is valid.")
def _(broker: Broker) -> None:
    _accept_subjects(broker, lambda subject: subject.startswith(b"."))


@defect("full-wildcard-stands-anywhere", breaks=("CORE-040",), summary="SUB a.>.b is valid.")
def _(broker: Broker) -> None:
    _accept_subjects(broker, lambda subject: b">" in subject.split(b".")[:-1])


def _accept_subjects(broker: Broker, also: Callable[[bytes], bool]) -> None:
    replace(broker, "is_valid_subject", lambda subject: subjects.is_valid(subject) or also(subject))


@defect(
    "pedantic-lets-wildcards-pass",
    breaks=("CORE-043",),
    summary="A pedantic PUB to a subject with wildcards is no error.",
)
def _(broker: Broker) -> None:
    replace(broker, "is_valid_publish_subject", subjects.is_valid)


@defect(
    "pedantic-lets-empty-tokens-pass",
    breaks=("CORE-045",),
    summary="A pedantic PUB to a subject with an empty token is no error.",
)
def _(broker: Broker) -> None:
    replace(broker, "is_valid_publish_subject", subjects.is_literal)
