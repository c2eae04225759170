"""What scenarios of lost connections have in common: a client that may reconnect, and what its wire shows.

A connection counts once the client has sent CONNECT and, if it has sent PING there as well, the server has
answered one: a client may go on without PING.
"""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.wire.nats import Connect, HPub, Info, Ping, Pong, Pub, Sub, Unsub

RECONNECT_WAIT_MS = 100  # between two attempts: what the adapter sets, where its library lets it
SUBSCRIBED_WITHIN_S = 2.0  # again, after a reconnect; some libraries report the reconnect first
FLUSH_TRIES = 20  # a library may refuse to flush until all that follows a reconnect is done


def connect_to_stay(scene: NatsScene, **fields: Any) -> None:
    """Connect with the library's reconnect switched on."""
    scene.connect(reconnect=True, reconnect_wait_ms=RECONNECT_WAIT_MS, **fields)
    scene.run_command("flush")


def connections(scene: NatsScene) -> list[str]:
    """The connections that count so far, in the order of their CONNECT."""
    answered = {seen.connection for seen in scene.received_operations(Pong)}
    unanswered = {seen.connection for seen in scene.sent_operations(Ping)} - answered
    opened = dict.fromkeys(seen.connection for seen in scene.sent_operations(Connect))
    return [name for name in opened if name not in unanswered]


def require_reconnected(scene: NatsScene, count: int = 2) -> str:
    """Evidence: there were ``count`` connections by now, the last one is in use. Its name."""
    scene.require(
        scene.await_wire(lambda: len(connections(scene)) >= count),
        "the client does not connect again",
        expected=f"connection {count}, with CONNECT, and PONG if it sends PING",
        actual=f"connections {', '.join(connections(scene))}",
    )
    return settle(scene)


def settle(scene: NatsScene) -> str:
    """Waits until the client has subscribed again on its last connection. The connection's name."""
    scene.await_events(lambda: scene.events_named("reconnected"), 1.0)
    *earlier, last = connections(scene)
    wanted = alive(scene, earlier[-1]) if earlier else set()
    scene.await_wire(lambda: wanted <= alive(scene, last), SUBSCRIBED_WITHIN_S)
    flush(scene)
    return last


def flush(scene: NatsScene) -> None:
    """Until the library does it."""
    for _ in range(FLUSH_TRIES):
        if scene.try_command("flush", within=5.0).error is None:
            break
        scene.await_events(lambda: False, 0.1)


def alive(scene: NatsScene, connection: str) -> set[str]:
    """The subjects that were subscribed on that connection and not ended at once."""
    subjects: dict[str, str] = {}
    for seen in scene.sent_operations(Sub, Unsub):
        if seen.connection != connection:
            continue
        if isinstance(seen.operation, Sub):
            subjects[seen.operation.sid] = seen.operation.subject
        elif isinstance(seen.operation, Unsub) and not seen.operation.max_msgs:
            subjects.pop(seen.operation.sid, None)
    return set(subjects.values())


def lose_connection(scene: NatsScene) -> str:
    """Reset it, and see the client connect again. The name of the new connection."""
    scene.broker.reset_connections()
    return require_reconnected(scene)


def cut_off(scene: NatsScene) -> None:
    """End the connection and refuse new ones until ``accept_connections``; the client has noticed it."""
    scene.broker.refuse_connections()
    scene.broker.close_connections()
    scene.await_wire(lambda: any(remark.connection == "refused" for remark in scene.broker.remarks))


def subscribed(scene: NatsScene, connection: str) -> list[tuple[str, str]]:
    """Subject and queue group of each SUB on that connection, but for those of inboxes."""
    operations = [seen.operation for seen in scene.sent_operations(Sub) if seen.connection == connection]
    return [
        (one.subject, one.queue or "")
        for one in operations
        if isinstance(one, Sub) and not one.subject.startswith("_INBOX.")
    ]


def published(scene: NatsScene, subject: str, connection: str = "") -> list[str]:
    """The payloads that the client published on that subject (and that connection), in order."""
    return [
        seen.operation.payload.decode("latin-1")
        for seen in scene.sent_operations(Pub, HPub)
        if isinstance(seen.operation, Pub | HPub)
        and seen.operation.subject == subject
        and connection in ("", seen.connection)
    ]


def inject_info(scene: NatsScene, **changes: Any) -> None:
    """Another INFO on the client's last connection: the first one with these fields changed."""
    infos = [seen.operation for seen in scene.received_operations(Info)]
    first = next(one for one in infos if isinstance(one, Info))
    fields = {**first.fields, **changes}
    scene.broker.inject(b"INFO " + json.dumps(fields).encode() + b"\r\n")


def address_of(url: str) -> str:
    """``host:port`` as connect_urls has it."""
    return url.rpartition("/")[2].rpartition("@")[2]


def send(scene: NatsScene, subject: str, *payloads: str) -> None:
    """Publish to the client's subscriptions, behind its back."""
    client = scene.direct_session.connect("publisher")
    client.send(*(Pub.make(subject, payload.encode()) for payload in payloads))
    client.flush()


def has_closed(scene: NatsScene) -> bool:
    """Whether the client has closed or reset its connection."""
    return any(
        "closed by the client" in remark.text or "reset" in remark.text for remark in scene.broker.remarks
    )
