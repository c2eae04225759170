"""What a server reports while a client is connected: INFO, -ERR, and silence. ADR-40; ADR-5."""

from __future__ import annotations

from plumbline.conformance.clients.nats.outages import (
    address_of,
    connect_to_stay,
    connections,
    has_closed,
    inject_info,
    published,
    require_reconnected,
    send,
)
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import Ping

PING_MS = 300
PINGS_OUT = 2
STALE_WITHIN_S = 6.0
STAYS_S = 0.5
MAX_PAYLOAD = 1000
DENIED = (
    'Permissions Violation for Publish to "secret"',
    'Permissions Violation for Subscription to "secret"',
)


@scenario("CLIENT-CONN-009", needs=["publish"])
def another_info_changes_nothing(scene: NatsScene) -> None:
    """INFO comes again, with a new server and connect_info, and the client goes on."""
    scene.connect()
    scene.run_command("flush")
    inject_info(scene, connect_urls=["127.0.0.1:4222"], connect_info=True, client_ip="127.0.0.1")
    scene.run_command("flush")
    scene.run_command("publish", subject="orders.new", data="one")
    scene.run_command("flush")
    found = published(scene, "orders.new")
    scene.require(
        found == ["one"] and not scene.events_named("closed", "disconnected"),
        "the client does not go on after another INFO",
        expected="PUB orders.new",
        actual=f"{found}, {[event.event for event in scene.events]}",
    )


@scenario("CLIENT-CONN-010", needs=["reconnect"])
def a_server_of_connect_urls_is_used(scene: NatsScene) -> None:
    """The first server is gone, and the client connects to the one of connect_urls."""
    connect_to_stay(scene)
    second = scene.broker.add_address()
    inject_info(scene, connect_urls=[address_of(scene.broker.url), address_of(second)])
    scene.run_command("flush")
    scene.broker.refuse_connections()
    scene.broker.close_connections()
    require_at_second(scene, require_reconnected(scene))


@scenario("CLIENT-CONN-011", needs=["lame-duck"])
def lame_duck_mode_is_reported(scene: NatsScene) -> None:
    """INFO with ldm is reported to the user."""
    scene.connect()
    scene.run_command("flush")
    inject_info(scene, ldm=True)
    reported = scene.await_events(lambda: scene.events_named("lame-duck"))
    scene.require(reported, "lame duck mode is not reported", expected="lame-duck", actual="nothing")


@scenario("CLIENT-CONN-012", needs=["reconnect", "subscribe"])
def a_lame_duck_is_left(scene: NatsScene) -> None:
    """What comes between INFO with ldm and the end is handed over; then the other server is used."""
    connect_to_stay(scene)
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("flush")
    second = scene.broker.add_address()
    inject_info(scene, ldm=True, connect_urls=[address_of(second)])
    send(scene, "orders.new", "m1")
    scene.await_events(lambda: scene.messages("a"))
    scene.broker.refuse_connections()
    scene.broker.close_connections()
    require_at_second(scene, require_reconnected(scene))
    send(scene, "orders.new", "m2")
    scene.await_events(lambda: len(scene.messages("a")) >= 2)
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1", "m2"], "messages are lost", expected="['m1', 'm2']", actual=data)


@scenario("CLIENT-CONN-013", needs=["reconnect", "ping"])
def silence_is_noticed(scene: NatsScene) -> None:
    """No byte comes any more: after the PINGs that may be unanswered the client connects again."""
    connect_to_stay(scene, ping_ms=PING_MS, pings_out=PINGS_OUT)
    first = connections(scene)[-1]
    with scene.collect_operations() as passed:
        scene.broker.silence_connections()
        noticed = scene.await_wire(lambda: len(connections(scene)) >= 2, STALE_WITHIN_S)
    pings = [seen for seen in passed if isinstance(seen.operation, Ping) and seen.connection == first]
    scene.require(
        noticed,
        "a silent connection is not given up",
        expected=f"another connection after {PINGS_OUT} unanswered PINGs, {PING_MS} ms apart",
        actual=f"{len(pings)} PINGs and the same connection within {STALE_WITHIN_S:g} s",
    )
    require_reconnected(scene)


@scenario("CLIENT-CONN-014")
def a_permissions_violation_is_reported(scene: NatsScene) -> None:
    """-ERR for a publish and for a subscription are reported, and the connection stays."""
    scene.connect()
    scene.run_command("flush")
    for number, text in enumerate(DENIED, 1):
        scene.broker.inject(f"-ERR '{text}'\r\n".encode())
        scene.await_events(lambda: len(reported(scene, "permissions violation")) >= number)  # noqa: B023
        scene.require(
            len(reported(scene, "permissions violation")) >= number,
            "a Permissions Violation is not reported",
            expected=f"an error: {text}",
            actual=[event.text for event in scene.events],
        )
    scene.run_command("flush")
    scene.require(
        stays(scene) and not scene.events_named("closed", "disconnected"),
        "the connection is closed",
        expected="one connection",
        actual=[event.event for event in scene.events],
    )


@scenario("CLIENT-CONN-015")
def an_expired_login_is_reported(scene: NatsScene) -> None:
    """-ERR 'User Authentication Expired' is reported before the server closes the connection."""
    scene.connect()
    scene.run_command("flush")
    scene.broker.inject(b"-ERR 'User Authentication Expired'\r\n")
    scene.await_events(lambda: reported(scene, "expired"), 1.0)
    scene.broker.close_connections()
    scene.await_events(lambda: reported(scene, "expired"))
    scene.require(
        reported(scene, "expired"),
        "the end of the login is not reported",
        expected="an error with User Authentication Expired",
        actual=[f"{event.event} {event.text}" for event in scene.events],
    )


@scenario("CLIENT-CONN-028", needs=["reconnect"])
def an_expired_login_is_renewed(scene: NatsScene) -> None:
    """After -ERR 'User Authentication Expired' and the end of the connection the client connects again."""
    connect_to_stay(scene)
    scene.broker.inject(b"-ERR 'User Authentication Expired'\r\n")
    scene.broker.close_connections()
    require_reconnected(scene)


@scenario("CLIENT-CONN-029", needs=["reconnect", "publish"])
def too_many_subscriptions_do_not_end_it(scene: NatsScene) -> None:
    """-ERR 'maximum subscriptions exceeded' is reported, and the connection stays."""
    connect_to_stay(scene)
    scene.broker.inject(b"-ERR 'maximum subscriptions exceeded'\r\n")
    scene.await_events(lambda: reported(scene, "maximum subscriptions"))
    scene.try_command("publish", subject="orders.new", data="one")
    scene.try_command("flush", within=5.0)
    scene.require(
        stays(scene)
        and reported(scene, "maximum subscriptions")
        and published(scene, "orders.new", connections(scene)[0]) == ["one"],
        "the error is not reported, or the connection does not stay",
        expected="an error, and PUB on the same connection",
        actual=[f"{event.event} {event.text}" for event in scene.events],
    )


@scenario("CLIENT-CONN-016", needs=["publish"], max_payload=MAX_PAYLOAD)
def a_payload_that_is_too_large_is_refused(scene: NatsScene) -> None:
    """One byte more than max_payload is an error of the publish, and is not sent."""
    scene.connect()
    scene.run_command("publish", subject="orders.new", data="x" * MAX_PAYLOAD)
    answer = scene.try_command("publish", subject="orders.new", data="x" * (MAX_PAYLOAD + 1))
    flushed = scene.try_command("flush", within=5.0)
    sent = [len(payload) for payload in published(scene, "orders.new")]
    scene.require(
        answer.error is not None and sent == [MAX_PAYLOAD] and flushed.error is None,
        "a payload of more than max_payload is not refused",
        expected=f"an error, and only {MAX_PAYLOAD} bytes on the wire",
        actual=f"{answer.error or 'no error'}; sent {sent} bytes; flush: {flushed.error or 'ok'}",
    )


@scenario("CLIENT-CONN-017", needs=["reconnect"])
def a_stale_connection_is_made_again(scene: NatsScene) -> None:
    """The server sends -ERR 'Stale Connection' and closes: the client connects again."""
    connect_to_stay(scene)
    first = connections(scene)[-1]
    scene.broker.inject(b"-ERR 'Stale Connection'\r\n", first)
    scene.broker.close_connections()
    require_reconnected(scene)


def require_at_second(scene: NatsScene, connection: str) -> None:
    """Evidence: this connection is one to the second server."""
    scene.require(
        connection.startswith("b"),
        "another server is used",
        expected="a connection to the server of connect_urls",
        actual=f"connection {connection}",
    )


def stays(scene: NatsScene) -> bool:
    """Whether the first connection is still there a while later: a library may end it after its report."""
    return not scene.await_wire(lambda: has_closed(scene) or len(connections(scene)) > 1, STAYS_S)


def reported(scene: NatsScene, words: str) -> list[str]:
    """The texts of errors and ends that the library reported with these words."""
    events = scene.events_named("error", "closed", "disconnected")
    return [event.text for event in events if words in f"{event.text} {event.type}".lower()]
