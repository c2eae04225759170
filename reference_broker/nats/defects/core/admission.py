"""Defects in how clients are let in and kept: CONNECT, authentication, limits, PING from the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.auth import Credentials
from plumbline.reference_broker.nats.config import User
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.nkeys import public_key
from plumbline.wire.nats import Connect, Info, Operation, Ping, Pong, Pub


@method_defect(Broker.dispatch, "CORE-022")
def lower_case_ping_is_ignored(
    broker: Broker, connection: NatsClientConnection, operation: Operation, now: int
) -> None:
    """ping in lower case gets no PONG."""
    if not (isinstance(operation, Ping) and operation.raw.startswith(b"ping")):
        Broker.dispatch(broker, connection, operation, now)


@method_defect(Broker.on_connect, "CORE-035")
def second_connect_is_refused(
    broker: Broker, connection: NatsClientConnection, operation: Connect, now: int
) -> None:
    """A second CONNECT ends the connection."""
    if connection.connected:
        broker.send_err_and_close(connection, None)
    else:
        Broker.on_connect(broker, connection, operation, now)


def _keeps_option(broker: Broker, option: str) -> None:
    """A second CONNECT leaves this option as it is."""
    original = broker.on_connect

    def on_connect(connection: NatsClientConnection, operation: Connect, now: int) -> None:
        before, was_connected = getattr(connection.options, option), connection.connected
        original(connection, operation, now)
        if was_connected:
            connection.options = structs.replace(connection.options, **{option: before})

    replace(broker, "on_connect", on_connect)


@defect("CORE-035")
def second_connect_leaves_echo(broker: Broker) -> None:
    """A second CONNECT does not change echo."""
    _keeps_option(broker, "echo")


@defect("CORE-035")
def second_connect_leaves_no_responders(broker: Broker) -> None:
    """A second CONNECT does not change no_responders."""
    _keeps_option(broker, "no_responders")


@method_defect(Broker.connect_refusal, "CORE-036")
def no_responders_needs_no_headers(broker: Broker, connection: NatsClientConnection) -> str | None:
    """CONNECT may ask for no_responders without headers."""
    found = Broker.connect_refusal(broker, connection)
    return None if found and found.startswith("no responders") else found


@defect("CORE-056")
def any_password_is_right(broker: Broker) -> None:
    """Any password but an empty one is right."""

    def password_is_right(user: User, password: str | None) -> bool:
        return bool(password)

    replace(broker.authenticator, "password_is_right", password_is_right)


def _passwords(broker: Broker, agree: Callable[[str, str], bool]) -> None:
    """Passwords are right if they ``agree(right, given)``, empty ones never."""
    replace(
        broker.authenticator,
        "password_is_right",
        lambda user, password: bool(password) and agree(user.password or "", password),
    )


@defect("CORE-056")
def passwords_ignore_case(broker: Broker) -> None:
    """Capital letters in a password are small ones."""
    _passwords(broker, lambda right, given: right.lower() == given.lower())


@defect("CORE-056")
def beginnings_of_passwords_are_enough(broker: Broker) -> None:
    """A password is right if the right one begins with it."""
    _passwords(broker, str.startswith)


@defect("CORE-056")
def passwords_may_go_on(broker: Broker) -> None:
    """A password is right if it begins with the right one."""
    _passwords(broker, lambda right, given: given.startswith(right))


@defect("CORE-147")
def a_password_needs_no_user(broker: Broker) -> None:
    """Whoever gives the password of any user is let in."""
    original = broker.authenticator.admits

    def admits(credentials: Credentials, nonce: str) -> bool:
        passwords = {user.password for user in broker.config.users} | {broker.config.authorization.password}
        return original(credentials, nonce) or bool(
            credentials.password and credentials.password in passwords
        )

    replace(broker.authenticator, "admits", admits)


@defect("CORE-059")
def tokens_ignore_case(broker: Broker) -> None:
    """Capital letters in a token are small ones."""
    original = broker.authenticator.token_is_right
    replace(
        broker.authenticator,
        "token_is_right",
        lambda token: original(token) or bool(token and original(token.lower())),
    )


@defect("CORE-059")
def beginnings_of_tokens_are_enough(broker: Broker) -> None:
    """A token is right if the right one begins with it."""
    right = broker.config.authorization.token or ""
    replace(broker.authenticator, "token_is_right", lambda token: bool(token) and right.startswith(token))


@defect("CORE-057")
def anonymous_is_let_in(broker: Broker) -> None:
    """Who shows no credentials needs none."""
    original = broker.authenticator.admits

    def admits(credentials: Credentials, nonce: str) -> bool:
        anonymous = not (credentials.user or credentials.token or credentials.nkey)
        return anonymous or original(credentials, nonce)

    replace(broker.authenticator, "admits", admits)


@defect("CORE-058")
def no_token_is_right(broker: Broker) -> None:
    """The configured token is refused."""
    replace(broker.authenticator, "token_is_right", lambda token: False)


@defect("CORE-059")
def any_token_is_right(broker: Broker) -> None:
    """Any token but an empty one is right."""
    replace(broker.authenticator, "token_is_right", bool)


@defect("CORE-110")
def any_signature_is_right(broker: Broker) -> None:
    """No NKey signature is wrong."""
    replace(broker.authenticator, "signature_is_right", lambda nkey, nonce, signature: True)


@defect("CORE-112")
def no_signature_is_right(broker: Broker) -> None:
    """Every NKey signature is wrong."""
    replace(broker.authenticator, "signature_is_right", lambda nkey, nonce, signature: False)


@defect("CORE-112")
def signatures_are_of_nothing(broker: Broker) -> None:
    """An NKey signature is compared with one of an empty nonce."""
    right = broker.authenticator.signature_is_right
    replace(
        broker.authenticator, "signature_is_right", lambda nkey, nonce, signature: right(nkey, "", signature)
    )


@defect("CORE-112")
def signatures_of_odd_keys_are_wrong(broker: Broker) -> None:
    """The last bit of a public key, which says whether x is odd, is not looked at: such a key is wrong."""
    right = broker.authenticator.signature_is_right

    def signature_is_right(nkey: str, nonce: str, signature: str) -> bool:
        return public_key(nkey)[31] < 128 and right(nkey, nonce, signature)

    replace(broker.authenticator, "signature_is_right", signature_is_right)


@defect("CORE-102")
def connect_must_come_whole(broker: Broker) -> None:
    """Where credentials are required, a first segment without the whole of CONNECT is refused."""

    def check_opening(connection: NatsClientConnection, unfinished: bytes) -> None:
        if unfinished:
            broker.send_err_and_close(connection, "Authorization Violation")

    replace(broker, "check_opening", check_opening)


@defect("CORE-102")
def connect_must_begin_with_its_name(broker: Broker) -> None:
    """Where credentials are required, a first segment of less than CONNECT and a blank is refused."""

    def check_opening(connection: NatsClientConnection, unfinished: bytes) -> None:
        if unfinished and not unfinished.upper().startswith(b"CONNECT "):
            broker.send_err_and_close(connection, "Authorization Violation")

    replace(broker, "check_opening", check_opening)


@method_defect(Broker.on_ping, "CORE-113")
def every_client_gets_a_second_info(broker: Broker, connection: NatsClientConnection) -> None:
    """A second INFO follows the first PONG, whatever protocol the client has."""
    is_first = connection.connected and not connection.first_pong_sent
    Broker.on_ping(broker, connection)
    if is_first and connection.options.protocol < 1:
        broker.send(connection, Info.make(broker.identity.connect_fields(connection)).raw)


@method_defect(Broker.on_ping, "CORE-113")
def protocol_0_is_called_again(broker: Broker, connection: NatsClientConnection) -> None:
    """A client of protocol 0 gets INFO at its second PING."""
    is_second = connection.first_pong_sent
    Broker.on_ping(broker, connection)
    if is_second and connection.options.protocol < 1:
        broker.send_info(connection)


@defect("CORE-061")
def authentication_times_out_in_silence(broker: Broker) -> None:
    """Who sends no CONNECT in time is cut off without -ERR."""
    replace(
        broker, "on_authentication_timeout", lambda connection: broker.send_err_and_close(connection, None)
    )


def _times_out_after(broker: Broker, times: float) -> None:
    """Who sends no CONNECT is cut off after so many times the timeout."""
    authorization = broker.config.authorization
    authorization = structs.replace(authorization, timeout=authorization.timeout * times)
    replace(broker, "config", structs.replace(broker.config, authorization=authorization))


@defect("CORE-061")
def authentication_times_out_too_early(broker: Broker) -> None:
    """Who sends no CONNECT is cut off after half of the timeout."""
    _times_out_after(broker, 0.5)


@defect("CORE-061")
def authentication_times_out_too_late(broker: Broker) -> None:
    """Who sends no CONNECT is cut off after twice the timeout."""
    _times_out_after(broker, 2)


@defect("CORE-062")
def operations_before_connect_are_served(broker: Broker) -> None:
    """Where credentials are required, whoever sends no CONNECT needs none."""
    replace(broker, "refuse_before_connect", broker.dispatch)
    replace(broker, "check_opening", lambda connection, unfinished: None)


@defect("CORE-063")
def operations_before_connect_are_refused(broker: Broker) -> None:
    """No operation is served before CONNECT, credentials or not."""
    dispatch, published = broker.dispatch, broker.on_pub

    def anything(connection: NatsClientConnection, operation: Operation, now: int) -> None:
        if connection.connected:
            dispatch(connection, operation, now)
        else:
            broker.send_err_and_close(connection, "Authorization Violation")

    def pub(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        if connection.connected:
            published(connection, operation, now)
        else:
            broker.send_err_and_close(connection, "Authorization Violation")

    replace(broker, "dispatch", anything)
    replace(broker, "on_pub", pub)


@defect("CORE-064")
def subscriptions_have_no_limit(broker: Broker) -> None:
    """A connection may have more than max_subscriptions."""
    replace(broker, "is_at_subscription_limit", lambda connection: False)


@defect("CORE-066")
def connections_have_no_limit(broker: Broker) -> None:
    """There may be more than max_connections."""
    replace(broker, "is_full", lambda: False)


def _only_these_keep_pings_away(broker: Broker, *kinds: type[Operation]) -> None:
    counted: dict[int, int] = {}

    def counting(original: Callable[[NatsClientConnection, Any, int], None]) -> Callable[..., None]:
        def handle(connection: NatsClientConnection, operation: Any, now: int) -> None:
            if isinstance(operation, kinds):
                counted[connection.id] = now
            original(connection, operation, now)
            connection.last_received = counted.get(connection.id, 0)

        return handle

    replace(broker, "dispatch", counting(broker.dispatch))
    replace(broker, "on_pub", counting(broker.on_pub))  # messages take a shorter way


@defect("CORE-115")
def pings_come_whatever_a_client_sends(broker: Broker) -> None:
    """PING comes at every ping_interval."""
    original = broker.on_ping_timer

    def on_ping_timer(connection: NatsClientConnection, now: int) -> None:
        connection.last_received = min(connection.last_received, now - broker.ping_interval())
        original(connection, now)

    replace(broker, "on_ping_timer", on_ping_timer)


@defect("CORE-115")
def messages_keep_no_ping_away(broker: Broker) -> None:
    """Only a PING or a PONG of a client makes the server wait with its own PING."""
    _only_these_keep_pings_away(broker, Ping, Pong)


@defect("CORE-115")
def pings_keep_no_ping_away(broker: Broker) -> None:
    """Only what a client publishes makes the server wait with its PING."""
    _only_these_keep_pings_away(broker, Pub)


@defect("CORE-068")
def silent_clients_are_kept(broker: Broker) -> None:
    """PINGs may stay unanswered for ever."""
    replace(broker, "is_stale", lambda connection: False)


@defect("CORE-068")
def ping_max_is_ignored(broker: Broker) -> None:
    """Two PINGs may go unanswered, whatever ping_max is."""
    replace(broker, "is_stale", lambda connection: connection.pings_out >= 2)
