"""Defects in the grammar: malformed input that is forgiven, and legal input that is not understood."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Connect, Decoder, HPub, Limits, Operation, Ping, Pub, Sender, subjects

LARGEST_HEADERS = 64 * 1024


def _forgive(
    broker: Broker, when: Callable[[NatsClientConnection, ProtocolError], bool], text: str | None = None
) -> None:
    """An error of one kind does not end the connection; what follows it in its segment is lost."""
    original = broker.on_malformed

    def malformed(connection: NatsClientConnection, error: ProtocolError) -> None:
        if connection.awaiting_auth or not when(connection, error):
            original(connection, error)
            return
        if text is not None:
            broker.send_err(connection, text)
        connection.decoder = broker.make_decoder()

    replace(broker, "on_malformed", malformed)


def _fields(error: ProtocolError) -> Sequence[bytes]:
    """The control line that was wrong, as far as the excerpt shows it."""
    return error.excerpt.split(b"\n")[0].split() or [b""]


def _verb(error: ProtocolError) -> bytes:
    return _fields(error)[0].upper()


def _has_wrong_fields(error: ProtocolError, verb: bytes) -> bool:
    """Whether an operation has too few fields, or too many."""
    return error.kind is ErrorKind.ARGUMENTS and _verb(error) == verb


@defect("CORE-024")
def unknown_operation_does_not_close(broker: Broker) -> None:
    """After an unknown operation name the connection stays open."""

    def when(connection: NatsClientConnection, error: ProtocolError) -> bool:
        return (
            error.kind is ErrorKind.UNKNOWN_OPERATION and connection.connected and error.excerpt[:1].isalpha()
        )

    _forgive(broker, when, "Unknown Protocol Operation")


@defect("CORE-023")
def empty_line_is_ignored(broker: Broker) -> None:
    """An empty line is no error."""
    _forgive(
        broker,
        lambda connection, error: (
            error.kind is ErrorKind.UNKNOWN_OPERATION and error.excerpt.startswith(b"\r\n")
        ),
    )


@method_defect(Broker.on_malformed, "CORE-025")
def garbage_before_connect_is_cut_off_in_silence(
    broker: Broker, connection: NatsClientConnection, error: ProtocolError
) -> None:
    """Who begins with something else than NATS gets no -ERR."""
    if error.kind is ErrorKind.UNKNOWN_OPERATION and not connection.connected:
        broker.send_err_and_close(connection, None)
    else:
        Broker.on_malformed(broker, connection, error)


@defect("CORE-026")
def sub_without_sid_is_ignored(broker: Broker) -> None:
    """A SUB without a sid is ignored."""
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"SUB") and len(_fields(error)) == 2)


@defect("CORE-027")
def sub_with_too_many_fields_is_ignored(broker: Broker) -> None:
    """A SUB with four fields is ignored."""
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"SUB") and len(_fields(error)) > 4)


@defect("CORE-028")
def pub_with_a_word_for_a_size_is_ignored(broker: Broker) -> None:
    """A PUB whose size is no number is ignored."""
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error) == b"PUB" and error.kind is ErrorKind.SIZE and _fields(error)[-1].isalpha()
        ),
    )


@defect("CORE-029")
def pub_with_a_negative_size_is_ignored(broker: Broker) -> None:
    """A PUB with a negative size is ignored."""
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error) == b"PUB" and error.kind is ErrorKind.SIZE and _fields(error)[-1].startswith(b"-")
        ),
    )


@defect("CORE-030")
def pub_without_size_is_ignored(broker: Broker) -> None:
    """A PUB without a size is ignored."""
    _forgive(broker, lambda connection, error: _has_wrong_fields(error, b"PUB"))


@defect("CORE-031")
def too_long_payload_is_ignored(broker: Broker) -> None:
    """A PUB whose payload does not end where it was announced is ignored."""
    _forgive(broker, lambda connection, error: error.kind is ErrorKind.PAYLOAD_END)


@defect("CORE-032")
def hpub_with_more_header_than_all_is_ignored(broker: Broker) -> None:
    """An HPUB whose header size is larger than its total size is ignored."""
    _forgive(broker, lambda connection, error: _verb(error) == b"HPUB" and error.kind is ErrorKind.SIZE)


@defect("CORE-034")
def malformed_connect_is_ignored(broker: Broker) -> None:
    """A CONNECT whose argument is no JSON object is ignored."""
    _forgive(
        broker,
        lambda connection, error: (
            _verb(error).startswith(b"CONNECT") and error.kind in (ErrorKind.JSON, ErrorKind.ARGUMENTS)
        ),
    )


@defect("CORE-047")
def oversized_pub_does_not_close(broker: Broker) -> None:
    """After a PUB larger than max_payload the connection stays open."""
    _forgive(
        broker,
        lambda connection, error: error.kind is ErrorKind.PAYLOAD_SIZE and _verb(error) == b"PUB",
        "Maximum Payload Violation",
    )


@defect("CORE-048")
def largest_payload_is_refused(broker: Broker) -> None:
    """max_payload is one byte less than in INFO."""
    config = broker.config
    limits = Limits(config.max_control_line, config.max_payload - 1)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


@defect("CORE-049")
def headers_do_not_count_as_payload(broker: Broker) -> None:
    """Only the payload of an HPUB counts against max_payload."""
    config = broker.config
    limits = Limits(config.max_control_line, config.max_payload + LARGEST_HEADERS)
    published, published_with_headers = broker.on_pub, broker.on_hpub

    def refused(connection: NatsClientConnection, operation: Pub | HPub) -> bool:
        too_large = len(operation.payload) > config.max_payload
        if too_large:
            broker.send_err_and_close(connection, "Maximum Payload Violation")
        return too_large

    def pub(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        if not refused(connection, operation):
            published(connection, operation, now)

    def hpub(connection: NatsClientConnection, operation: HPub, now: int) -> None:
        if not refused(connection, operation):
            published_with_headers(connection, operation, now)

    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))
    replace(broker, "on_pub", pub)
    replace(broker, "on_hpub", hpub)


@defect("CORE-050")
def control_line_has_no_limit(broker: Broker) -> None:
    """A control line may be as long as it likes."""
    limits = Limits(max_control_line=1 << 30, max_payload=broker.config.max_payload)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


@defect("CORE-106")
def control_line_limit_is_1024(broker: Broker) -> None:
    """A control line may have 1024 bytes."""
    limits = Limits(min(broker.config.max_control_line, 1024), broker.config.max_payload)
    replace(broker, "make_decoder", lambda: Decoder(Sender.CLIENT, limits))


def _look_first(broker: Broker, is_legal: Callable[[Operation], bool]) -> None:
    """Refuse operations that are legal; CONNECT and PING always are."""
    dispatch, published = broker.dispatch, broker.on_pub

    def looking(connection: NatsClientConnection, operation: Operation, now: int) -> None:
        if isinstance(operation, Ping | Connect) or is_legal(operation):
            dispatch(connection, operation, now)
        else:
            broker.send_err_and_close(connection, "Unknown Protocol Operation")

    def looking_at_pub(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        if is_legal(operation):
            published(connection, operation, now)
        elif not connection.closing:
            broker.send_err_and_close(connection, "Unknown Protocol Operation")

    replace(broker, "dispatch", looking)
    replace(broker, "on_pub", looking_at_pub)


@defect("CORE-019")
def operation_names_are_case_sensitive(broker: Broker) -> None:
    """Operation names but PING and CONNECT must be in upper case."""
    _look_first(broker, lambda operation: operation.raw.startswith(operation.verb.encode()))


@defect("CORE-020")
def one_blank_separates_fields(broker: Broker) -> None:
    """Tabs, and more than one blank, do not separate fields."""

    def is_legal(operation: Operation) -> bool:
        line = operation.raw[: operation.head]
        return b"\t" not in line and b"  " not in line

    _look_first(broker, is_legal)


@defect("CORE-020")
def one_blank_follows_the_operation(broker: Broker) -> None:
    """Two blanks or tabs between PUB and its subject do not separate them."""
    _look_first(broker, lambda operation: operation.verb != "PUB" or operation.raw[4:5] not in b"\t ")


@defect("CORE-037")
def empty_token_is_valid(broker: Broker) -> None:
    """SUB foo..bar is valid."""
    _accept_subjects(broker, lambda subject: b".." in subject)


@defect("CORE-038")
def trailing_dot_is_valid(broker: Broker) -> None:
    """SUB foo. is valid."""
    _accept_subjects(broker, lambda subject: subject.endswith(b"."))


@defect("CORE-039")
def leading_dot_is_valid(broker: Broker) -> None:
    """SUB .foo is valid."""
    _accept_subjects(broker, lambda subject: subject.startswith(b"."))


@defect("CORE-040")
def full_wildcard_stands_anywhere(broker: Broker) -> None:
    """SUB a.>.b is valid."""
    _accept_subjects(broker, lambda subject: b">" in subject.split(b".")[:-1])


def _accept_subjects(broker: Broker, also: Callable[[bytes], bool]) -> None:
    replace(broker, "is_valid_subject", lambda subject: subjects.is_valid(subject) or also(subject))


@defect("CORE-043")
def pedantic_lets_wildcards_pass(broker: Broker) -> None:
    """A pedantic PUB to a subject with wildcards is no error."""
    replace(broker, "is_valid_publish_subject", subjects.is_valid)


@defect("CORE-045")
def pedantic_lets_empty_tokens_pass(broker: Broker) -> None:
    """A pedantic PUB to a subject with an empty token is no error."""
    replace(broker, "is_valid_publish_subject", subjects.is_literal)
