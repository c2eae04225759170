"""Defects in headers and in the 503 of a request without a subscriber (ADR-4)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.routing import Route, RoutedMessage
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.nats.headers import VERSION

NO_FIELDS = VERSION + b"\r\n\r\n"


def _no_responders(
    broker: Broker, connection: NatsClientConnection, subject: bytes, reply: bytes, sid: bytes
) -> None:
    """The 503 that a sid gets, whatever it has subscribed to."""
    block = broker.no_responders_block(subject)
    sizes = b"%d %d" % (len(block), len(block))
    broker.send(connection, b"HMSG %b %b %b\r\n%b\r\n" % (reply, sid, sizes, block))


@defect("CORE-033")
def hpub_needs_no_headers_in_connect(broker: Broker) -> None:
    """HPUB is accepted from clients that did not ask for headers."""
    replace(broker, "may_send_headers", lambda connection: not broker.config.no_header_support)


@defect("CORE-067")
def hpub_is_accepted_without_header_support(broker: Broker) -> None:
    """HPUB is accepted although header support is switched off."""
    replace(
        broker, "may_send_headers", lambda connection: connection.headers or broker.config.no_header_support
    )


@method_defect(Broker.message, "CORE-070")
def header_names_are_capitalised(
    broker: Broker,
    subject: bytes,
    reply: bytes | None,
    sizes: tuple[bytes, bytes],
    block: bytes,
    payload: bytes,
) -> RoutedMessage:
    """The first letter of each header name is put in upper case."""
    if block.startswith(VERSION):
        block = b"\r\n".join(line[:1].upper() + line[1:] for line in block.split(b"\r\n"))
    return Broker.message(broker, subject, reply, sizes, block, payload)


@method_defect(Broker.message, "CORE-071")
def hmsg_lacks_the_reply(
    broker: Broker,
    subject: bytes,
    reply: bytes | None,
    sizes: tuple[bytes, bytes],
    block: bytes,
    payload: bytes,
) -> RoutedMessage:
    """HMSG lacks the reply that the publisher gave."""
    right = Broker.message(broker, subject, reply, sizes, block, payload)
    lacking = Broker.message(broker, subject, None, sizes, block, payload)
    return right if right.stripped is None else RoutedMessage(subject, lacking.tail, right.stripped)


@defect("CORE-072")
def headers_reach_those_who_did_not_ask(broker: Broker) -> None:
    """Messages with headers are HMSG to every subscriber."""

    def framed(connection: NatsClientConnection, head: bytes, message: RoutedMessage) -> tuple[bytes, ...]:
        return (head, message.tail) if message.stripped is None else (b"H", head, message.tail)

    replace(broker.router, "framed", framed)


@method_defect(Broker.message, "CORE-073")
def header_block_without_fields_is_dropped(
    broker: Broker,
    subject: bytes,
    reply: bytes | None,
    sizes: tuple[bytes, bytes],
    block: bytes,
    payload: bytes,
) -> RoutedMessage:
    """A header block without fields and payload is delivered as MSG."""
    if block == NO_FIELDS and not payload:
        return Broker.message(broker, subject, reply, (b"0", b"0"), b"", payload)
    return Broker.message(broker, subject, reply, sizes, block, payload)


def _refuse_hpub(broker: Broker, when: Callable[[HPub], bool]) -> None:
    original = broker.on_hpub

    def published_with_headers(connection: NatsClientConnection, operation: HPub, now: int) -> None:
        if when(operation):
            broker.send_err_and_close(connection, None)
        else:
            original(connection, operation, now)

    replace(broker, "on_hpub", published_with_headers)


@defect("CORE-074")
def header_block_is_judged(broker: Broker) -> None:
    """A header block must begin with NATS/1.0."""
    _refuse_hpub(
        broker,
        lambda operation: bool(operation.header_block) and not operation.header_block.startswith(VERSION),
    )


@defect("CORE-075")
def header_size_0_is_refused(broker: Broker) -> None:
    """HPUB with header size 0 ends the connection."""
    _refuse_hpub(broker, lambda operation: not operation.header_block)


@defect("CORE-076")
def gone_subscribers_still_count(broker: Broker) -> None:
    """A request to a subject whose only subscriber has gone gets no 503."""
    gone: set[bytes] = set()
    forget, on_no_receivers = broker.forget, broker.on_no_receivers

    def remember(connection: NatsClientConnection) -> None:
        gone.update(each.subject for each in connection.subscriptions.values())
        forget(connection)

    def unless_gone(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        if subject not in gone:
            on_no_receivers(connection, subject, reply)

    replace(broker, "forget", remember)
    replace(broker, "on_no_receivers", unless_gone)


@defect("CORE-076")
def nobody_responds_is_not_told(broker: Broker) -> None:
    """A request without a subscriber gets no 503."""
    replace(broker, "send_no_responders", lambda connection, subject, reply: None)


def _unheard(broker: Broker, react: Callable[[NatsClientConnection, bytes, bytes | None], None]) -> None:
    """Something happens, too, when a message has no subscriber."""
    original = broker.on_no_receivers

    def unheard(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        original(connection, subject, reply)
        react(connection, subject, reply)

    replace(broker, "on_no_receivers", unheard)


@defect("CORE-077", name="503-without-a-request")
def status_503_without_a_request(broker: Broker) -> None:
    """A PUB without reply and without a subscriber brings a 503 to an inbox of its publisher."""

    def react(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        if reply is not None or not connection.options.no_responders:
            return
        for subscription in connection.subscriptions.values():
            if subscription.subject.startswith(b"_INBOX."):
                _no_responders(broker, connection, subject, subscription.subject, subscription.sid)
                return

    _unheard(broker, react)


@defect("CORE-078", name="503-to-a-reply-without-subscription")
def status_503_to_a_reply_without_subscription(broker: Broker) -> None:
    """A request without a subscriber brings a 503 although its sender has not subscribed to the reply."""

    def react(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        if reply is None or not connection.options.no_responders:
            return
        if not any(one.connection is connection for one in broker.router.matching(reply)):
            sid = next(iter(connection.subscriptions), b"1")
            _no_responders(broker, connection, subject, reply, sid)

    _unheard(broker, react)


@defect("CORE-079", name="503-without-no-responders")
def status_503_without_no_responders(broker: Broker) -> None:
    """A request without a subscriber brings a 503 to clients that did not ask for it."""

    def react(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        if reply is not None and connection.headers and not connection.options.no_responders:
            broker.send_no_responders(connection, subject, reply)

    _unheard(broker, react)


@defect("CORE-081", name="503-beside-the-answer-to-headers")
def status_503_beside_the_answer_to_headers(broker: Broker) -> None:
    """A request with headers brings a 503 although a subscriber gets it."""
    original = broker.on_hpub

    def published_with_headers(connection: NatsClientConnection, operation: HPub, now: int) -> None:
        original(connection, operation, now)
        route = broker.router.route(operation.args[0])
        if len(operation.args) == 4 and (route.plain or route.groups):
            broker.on_no_receivers(connection, operation.args[0], operation.args[1])

    replace(broker, "on_hpub", published_with_headers)


@method_defect(Broker.on_pub, "CORE-081", name="503-although-somebody-listens")
def status_503_although_somebody_listens(
    broker: Broker, connection: NatsClientConnection, operation: Pub, now: int
) -> None:
    """A request brings a 503 although it has reached a subscriber."""
    Broker.on_pub(broker, connection, operation, now)
    route = broker.router.route(operation.args[0])
    if len(operation.args) == 3 and connection.options.no_responders and (route.plain or route.groups):
        broker.send_no_responders(connection, operation.args[0], operation.args[1])


@method_defect(Broker.send_no_responders, "CORE-080", name="503-for-every-subscription")
def status_503_for_every_subscription(
    broker: Broker, connection: NatsClientConnection, subject: bytes, reply: bytes
) -> None:
    """Each subscription that matches the reply of a request without responders gets a 503."""
    for subscription in broker.router.matching(reply):
        if subscription.connection is connection:
            _no_responders(broker, connection, subject, reply, subscription.sid)


@defect("CORE-082", needs=("jetstream",))
def unknown_api_request_is_answered(broker: Broker) -> None:
    """A request below $JS.API that is none of the API gets an empty answer."""
    service = broker.service
    assert service is not None  # what ``needs`` says
    received, publish = service.on_message, broker.publish
    published = 0

    def is_request(subject: bytes) -> bool:
        return subject.startswith(b"$JS.API.") and not subject.startswith(b"$JS.API.CONSUMER.MSG.NEXT.")

    def counting(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        nonlocal published
        published += 1
        return publish(subject, reply, header_block, payload)

    def answering(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int) -> bool:
        before = published
        took = received(subject, reply, header_block, payload, now)
        if took and reply and published == before and is_request(subject):
            publish(reply, None, b"", b"")
        return took

    replace(broker, "publish", counting)
    replace(service, "on_message", answering)


def _before_hpub(broker: Broker, change: Callable[[NatsClientConnection, HPub], bool]) -> None:
    """An HPUB is handled if ``change`` says so."""
    original = broker.on_hpub

    def on_hpub(connection: NatsClientConnection, operation: HPub, now: int) -> None:
        if change(connection, operation):
            original(connection, operation, now)

    replace(broker, "on_hpub", on_hpub)


@defect("CORE-049")
def headers_and_payload_stay_below_the_maximum(broker: Broker) -> None:
    """An HPUB of exactly max_payload bytes is refused as one of more."""

    def change(connection: NatsClientConnection, operation: HPub) -> bool:
        is_less = int(operation.args[-1]) < broker.config.max_payload
        if not is_less:
            broker.send_err_and_close(connection, "Maximum Payload Violation")
        return is_less

    _before_hpub(broker, change)


@defect("CORE-094")
def own_messages_with_headers_come_back(broker: Broker) -> None:
    """Without echo a connection hears what it publishes with headers."""
    original = broker.router.deliver

    def deliver(route: Route, message: RoutedMessage, publisher: NatsClientConnection | None) -> int:
        return original(route, message, None)

    replace(broker.router, "deliver", deliver)


@defect("CORE-076")
def requests_with_headers_get_no_503(broker: Broker) -> None:
    """A request with headers to a subject without subscribers is answered with nothing."""
    with_headers = [False]
    original_hpub, original = broker.on_hpub, broker.on_no_receivers

    def on_hpub(connection: NatsClientConnection, operation: HPub, now: int) -> None:
        with_headers[0] = True
        original_hpub(connection, operation, now)
        with_headers[0] = False

    def on_no_receivers(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        if not with_headers[0]:
            original(connection, subject, reply)

    replace(broker, "on_hpub", on_hpub)
    replace(broker, "on_no_receivers", on_no_receivers)


@defect("CORE-148")
def pedantic_is_for_pub(broker: Broker) -> None:
    """With pedantic true an HPUB to an invalid subject gets no error."""
    original = broker.admits

    def admits(
        connection: NatsClientConnection, operation: Pub | HPub, reply: bytes | None, route: Route
    ) -> bool:
        options = connection.options
        if isinstance(operation, HPub):
            connection.options = structs.replace(options, pedantic=False)
        try:
            return original(connection, operation, reply, route)
        finally:
            connection.options = options

    replace(broker, "admits", admits)
