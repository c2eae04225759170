"""Defects in logins: passwords, mechanisms, and what a client says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    handling,
)
from plumbline.reference_broker.amqp.lifecycle import Handler, Phase
from plumbline.reference_broker.amqp.topology.queues import QueueConsumer
from plumbline.wire.amqp import (
    Method,
)


@defect("AMQP-CONN-008")
def every_second_login_fails(broker: Broker) -> None:
    """Every second login is refused, however valid."""
    original = broker.handshake.admits
    logins = [0]

    def admits(user: str, password: str) -> bool:
        logins[0] += 1
        return original(user, password) and logins[0] % 2 == 1

    replace(broker.handshake, "admits", admits)


@defect("AMQP-CONN-009")
def any_password_is_right(broker: Broker) -> None:
    """A known user needs no right password."""
    replace(broker.handshake, "admits", lambda user, password: user in broker.config.users)


def _passwords(broker: Broker, agree: Callable[[str, str], bool]) -> None:
    """A user's password is right if ``agree(right, given)``."""

    def admits(user: str, password: str) -> bool:
        right = broker.config.users.get(user)
        return isinstance(right, str) and bool(right) and agree(right, password)

    replace(broker.handshake, "admits", admits)


@defect("AMQP-CONN-009")
def logins_ignore_the_case_of_passwords(broker: Broker) -> None:
    """Capital letters in a password are small ones."""
    _passwords(broker, lambda right, given: right.lower() == given.lower())


@defect("AMQP-CONN-009")
def logins_need_the_beginning_of_a_password(broker: Broker) -> None:
    """A password is right if the right one begins with it, the empty one too."""
    _passwords(broker, str.startswith)


@defect("AMQP-CONN-009")
def logins_may_go_on_after_the_password(broker: Broker) -> None:
    """A password is right if it begins with the right one."""
    _passwords(broker, lambda right, given: given.startswith(right))


@defect("AMQP-CONN-009")
def logins_ignore_the_case_of_names(broker: Broker) -> None:
    """Capital letters in the name of a user are small ones."""
    original = broker.handshake.admits
    replace(broker.handshake, "admits", lambda user, password: original(user.lower(), password))


@defect("AMQP-CONN-011")
def any_mechanism_will_do(broker: Broker) -> None:
    """A mechanism that was not offered is taken for PLAIN."""
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        known = original(mechanism, response)
        if known is not None or mechanism in ("PLAIN", "AMQPLAIN"):
            return known
        return next(iter(broker.config.users.items()))

    replace(broker.handshake, "credentials", credentials)


@defect("AMQP-CONN-011")
def known_mechanisms_need_no_offer(broker: Broker) -> None:
    """AMQPLAIN logs in also where it is not offered."""
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        config = broker.handshake.config
        broker.handshake.config = with_fields(config, auth_mechanisms=("PLAIN", "AMQPLAIN"))
        try:
            return original(mechanism, response)
        finally:
            broker.handshake.config = config

    replace(broker.handshake, "credentials", credentials)


@defect("AMQP-CONN-012")
def malformed_plain_is_let_in(broker: Broker) -> None:
    """A PLAIN response without its two separators logs the first user in."""
    original = broker.handshake.credentials

    def credentials(mechanism: str, response: str) -> tuple[str, str] | None:
        known = original(mechanism, response)
        if known is None and mechanism == "PLAIN":
            return next(iter(broker.config.users.items()))
        return known

    replace(broker.handshake, "credentials", credentials)


def _logs_in(broker: Broker, change: Callable[[str, tuple[str, str] | None], tuple[str, str] | None]) -> None:
    """The credentials of a login are others: ``change(mechanism, credentials)``."""
    original = broker.handshake.credentials
    replace(
        broker.handshake,
        "credentials",
        lambda mechanism, response: change(mechanism, original(mechanism, response)),
    )


@defect("AMQP-CONN-050")
def amqplain_is_offered_in_vain(broker: Broker) -> None:
    """AMQPLAIN is offered, and a login with it is refused."""
    _logs_in(broker, lambda mechanism, known: None if mechanism == "AMQPLAIN" else known)


@defect("AMQP-CONN-009")
def amqplain_needs_no_password(broker: Broker) -> None:
    """With AMQPLAIN any password is right."""
    users = broker.config.users
    _logs_in(
        broker,
        lambda mechanism, known: (
            (known[0], users.get(known[0], "")) if known is not None and mechanism == "AMQPLAIN" else known
        ),
    )


@defect("AMQP-CONN-009")
def passwords_are_anybodys(broker: Broker) -> None:
    """The password of any user logs in, whatever name comes with it."""
    replace(broker.handshake, "admits", lambda user, password: password in broker.config.users.values())


@defect("AMQP-CONN-051")
def malformed_amqplain_is_let_in(broker: Broker) -> None:
    """An AMQPLAIN response that lacks something logs the first user in."""
    first = next(iter(broker.config.users.items()))
    _logs_in(broker, lambda mechanism, known: first if mechanism == "AMQPLAIN" and not known else known)


@defect("AMQP-CONN-052")
def wrong_credentials_are_always_told(broker: Broker) -> None:
    """connection.close 403 comes to clients that do not ask for it."""
    original = broker.handshake.login_failed

    def login_failed(connection: AmqpClientConnection, mechanism: str, now: int) -> None:
        connection.capabilities = {**connection.capabilities, "authentication_failure_close": True}
        original(connection, mechanism, now)

    replace(broker.handshake, "login_failed", login_failed)


@defect("AMQP-CONN-053")
def clients_must_have_capabilities(broker: Broker) -> None:
    """Who does not say what it can do is disconnected."""

    @handling(broker, "connection.start-ok", phase=Phase.START_OK)
    def handle(original: Handler, connection: Any, operation: Method, now: int) -> None:
        if isinstance(operation.arguments["client_properties"].get("capabilities"), Mapping):
            original(connection, operation, now)
        else:
            broker.closing.close_without_reply(connection, now)


@defect("AMQP-CONN-053")
def a_text_claims_everything(broker: Broker) -> None:
    """A client whose capabilities are no table is taken for one that has them all."""
    original = broker.topology.notify_cancel

    def notify_cancel(consumer: QueueConsumer) -> None:
        connection = consumer.channel.connection
        if isinstance(connection.properties.get("capabilities"), str):
            connection.capabilities = {"consumer_cancel_notify": True}
        original(consumer)

    replace(broker.topology, "notify_cancel", notify_cancel)
