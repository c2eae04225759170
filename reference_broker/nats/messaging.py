"""SUB, UNSUB, PUB and HPUB, and the "no responders" status.

Sources: docs.nats.io, "Client Protocol"; ADR-4, "NATS Message Headers".
"""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.nats.auth import SYSTEM_QUEUE
from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.routing import Route, RoutedMessage
from plumbline.reference_broker.nats.state import State, quoted
from plumbline.wire.errors import ErrorKind
from plumbline.wire.nats import HPub, Pub, Sub, Unsub, subjects

RESERVED_REPLIES = (b"_R_.", b"$JS.ACK.", b"_GR_.")  # replies of the server's own

CR = 13


class Messaging(State):
    """Subscriptions and messages. The methods of ``host.Host`` are here, too."""

    def on_sub(self, connection: NatsClientConnection, operation: Sub, now: int) -> None:
        subject, sid = operation.args[0], operation.args[-1]
        queue = operation.args[1] if len(operation.args) == 3 else None
        if (refusal := self.subscribe_refusal(connection, subject, queue)) is not None:
            self.send_err(connection, refusal)
            return
        if sid in connection.subscriptions:  # the first one stands
            self.send_ok(connection, operation)
            return
        if not self.is_valid_subject(subject):
            self.send_err(connection, "Invalid Subject")
            return
        subscription = Subscription(connection, sid, subject, queue, connection.out)
        subscription.filtered = connection.permits is not None and connection.permits.must_filter(subject)
        connection.subscriptions[sid] = subscription
        self.router.mark_special(subscription)
        self.router.add(subscription)
        self.send_ok(connection, operation)
        if self.service is not None:
            self.service.on_subscribed(subject, now)

    def is_valid_subject(self, subject: bytes) -> bool:
        return subjects.is_valid(subject)

    def subscribe_refusal(
        self, connection: NatsClientConnection, subject: bytes, queue: bytes | None
    ) -> str | None:
        """Why a client may not subscribe to that; None if it may."""
        if not self.may_subscribe(connection, subject, queue):
            group = f" using queue {quoted(queue)}" if queue else ""
            return f"Permissions Violation for Subscription to {quoted(subject)}{group}"
        if self.is_at_subscription_limit(connection):
            return "maximum subscriptions exceeded"
        return None

    def is_at_subscription_limit(self, connection: NatsClientConnection) -> bool:
        """Whether a connection may not have one subscription more."""
        return 0 < self.config.max_subscriptions <= len(connection.subscriptions)

    def may_subscribe(self, connection: NatsClientConnection, subject: bytes, queue: bytes | None) -> bool:
        if queue == SYSTEM_QUEUE:
            return False
        return connection.permits is None or connection.permits.may_subscribe(subject, queue)

    def on_unsub(self, connection: NatsClientConnection, operation: Unsub) -> None:
        self.send_ok(connection, operation)
        subscription = connection.subscriptions.get(operation.args[0])
        if subscription is not None:
            self.router.set_max_msgs(subscription, operation.max_msgs or 0)

    def on_pub(self, connection: NatsClientConnection, operation: Pub, now: int) -> None:
        """The hot path: no object is made here but the bytes that are sent."""
        args, raw = operation.args, operation.raw
        subject = args[0]
        reply = args[1] if len(args) == 3 else None
        router = self.router
        route = router.routes.get(subject) or router.route(subject)
        if (connection.guarded or route.reserved or reply is not None) and not self.admits(
            connection, operation, reply, route
        ):
            return
        count = 0
        if route.plain or route.groups:
            if reply is not None:
                tail = b"%b %b\r\n%b" % (reply, args[2], raw[operation.head :])
            elif operation.head == len(subject) + len(args[1]) + 7 and raw[operation.head - 2] == CR:
                tail = raw[len(subject) + 5 :]  # the line is "PUB subject size", spaced as we would
            else:
                tail = b"%b\r\n%b" % (args[1], raw[operation.head :])
            count = router.deliver_plainly(route, subject, tail, connection)
        if route.served and self.service_accepts(subject, reply, b"", operation.payload, now):
            return
        if not count:
            self.on_no_receivers(connection, subject, reply)

    def service_accepts(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> bool:
        """Whether the service inside answers for a message."""
        return self.service is not None and self.service.on_message(
            subject, reply, header_block, payload, now
        )

    def on_hpub(self, connection: NatsClientConnection, operation: HPub, now: int) -> None:
        if not self.may_send_headers(connection):
            self.send_err_and_close(connection, self.error_texts.get(ErrorKind.HEADERS))
            return
        subject, header_size, size = operation.args[0], operation.args[-2], operation.args[-1]
        reply = operation.args[1] if len(operation.args) == 4 else None
        route = self.router.route(subject)
        if not self.admits(connection, operation, reply, route):
            return
        block, payload = operation.header_block, operation.payload
        message = self.message(subject, reply, (header_size, size), block, payload)
        count = self.router.deliver(route, message, connection)
        if route.served and self.service_accepts(subject, reply, block, payload, now):
            return
        if not count:
            self.on_no_receivers(connection, subject, reply)

    def admits(
        self, connection: NatsClientConnection, operation: Pub | HPub, reply: bytes | None, route: Route
    ) -> bool:
        """Whether a publish goes on; tells the client what it must know, in the order servers do."""
        subject = operation.args[0]
        if connection.options.pedantic and not self.is_valid_publish_subject(subject):
            self.send_err(connection, "Invalid Publish Subject")  # and yet it goes on
        if route.reserved or not self.may_publish(connection, subject):
            self.send_err(connection, f"Permissions Violation for Publish to {quoted(subject)}")
            return False
        if reply is not None and reply.startswith(RESERVED_REPLIES):
            self.send_err(connection, f"Permissions Violation for Publish with Reply of {quoted(reply)}")
            return False
        self.send_ok(connection, operation)
        return True

    def may_send_headers(self, connection: NatsClientConnection) -> bool:
        return connection.headers

    def is_valid_publish_subject(self, subject: bytes) -> bool:
        return subjects.is_valid_literal(subject)

    def may_publish(self, connection: NatsClientConnection, subject: bytes) -> bool:
        permits = connection.permits
        if permits is None or permits.may_publish(subject):
            return True
        return permits.responses is not None and permits.may_respond(subject, self.now)

    def message(
        self, subject: bytes, reply: bytes | None, sizes: tuple[bytes, bytes], block: bytes, payload: bytes
    ) -> RoutedMessage:
        """A client's message with headers, its sizes as they were written."""
        return framed_message(subject, reply, sizes, block, payload)

    def own_message(self, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> RoutedMessage:
        """A message of the server's own."""
        head_size = b"%d" % len(block) if block else b""  # which a message without headers does not have
        sizes = head_size, b"%d" % (len(block) + len(payload))
        blank = b"" if reply is None and self.rules.blank_for_missing_reply else reply
        return framed_message(subject, blank, sizes, block, payload)

    def on_no_receivers(self, connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
        """A message reached no subscriber."""
        if reply is not None and connection.options.no_responders:
            self.send_no_responders(connection, subject, reply)

    def send_no_responders(self, connection: NatsClientConnection, subject: bytes, reply: bytes) -> None:
        """Tell the requester at once that there is no subscriber. ADR-4, "No Responders".

        Servers do so by the first subscription of its own that matches the reply, queue groups aside.
        """
        for subscription, head in self.router.route(reply).plain:
            if subscription.connection is connection:
                block = self.no_responders_block(subject)
                self.send(connection, b"H%b%d %d\r\n%b\r\n" % (head, len(block), len(block), block))
                return

    def no_responders_block(self, subject: bytes) -> bytes:
        named = b"Nats-Subject: %b\r\n" % subject if self.rules.no_responders_names_subject else b""
        return b"NATS/1.0 503\r\n%b\r\n" % named

    # Host: what a service asks of us

    def publish(self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        return self.deliver(subject, subject, reply, header_block, payload)

    def deliver(
        self, target: bytes, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes
    ) -> int:
        route = self.router.route(target)
        message = self.own_message(subject, reply, header_block, payload)
        if target != subject:
            return self.router.deliver_under(route, subject, message)
        return self.router.deliver(route, message, None)

    def forget_routes(self) -> None:
        self.router.forget_routes()

    def has_interest(self, subject: bytes) -> bool:
        route = self.router.route(subject)
        return bool(route.plain or route.groups)

    def requester(self) -> dict[str, Any]:
        return self.identity.client_fields(self.speaking)

    def has_subscriber(self, subject: bytes, queue: bytes | None) -> bool:
        return any(each.subject == subject and each.queue == queue for each in self.router.matching(subject))


def framed_message(
    subject: bytes, reply: bytes | None, sizes: tuple[bytes, bytes], block: bytes, payload: bytes
) -> RoutedMessage:
    """A message ready for its receivers; an empty header block is no headers."""
    begin = b"" if reply is None else reply + b" "
    if not block:
        return RoutedMessage(subject, b"%b%b\r\n%b\r\n" % (begin, sizes[1], payload))
    stripped = b"%b%d\r\n%b\r\n" % (begin, len(payload), payload)
    return RoutedMessage(subject, b"%b%b %b\r\n%b%b\r\n" % (begin, *sizes, block, payload), stripped)
