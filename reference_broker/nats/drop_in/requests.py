"""What an account may ask the server by messages: who am I, and how are we connected. Pure.

``$SYS.REQ.USER.INFO`` and the requests about the own account's connections. What only the system account may
ask has no responders here. Source: docs.nats.io, "System Accounts"; fields as nats-server answers.

Installed on a broker, as a defect is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.config import NS, Permission, Permissions
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.drop_in.monitoring import Monitor
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.wire.nats.jetstream.times import format_time

FIRST_LEVEL = (2, 10)  # 2.9 does not answer an account
NAMED_SINCE = (2, 15)  # account_name; not yet 2.10

Answer = Callable[[NatsClientConnection, int], dict[str, Any]]


class SystemRequests:
    """The responder of one account's ``broker``."""

    def __init__(self, monitor: Monitor, account: str, broker: Broker) -> None:
        self.monitor = monitor
        self.account = account
        self.broker = broker
        self.answered = 0
        self.answers: dict[bytes, Answer] = {
            b"$SYS.REQ.USER.INFO": self.user_info,
            b"$SYS.REQ.SERVER.PING.CONNZ": self.connz,
            b"$SYS.REQ.ACCOUNT.PING.CONNZ": self.connz,
            b"$SYS.REQ.ACCOUNT.PING.STATZ": self.statz,
        }

    def install(self) -> None:
        """Answer requests that no other part answers."""
        if self.broker.config.level < FIRST_LEVEL:
            return
        unanswered = self.broker.on_no_receivers

        def respond(connection: NatsClientConnection, subject: bytes, reply: bytes | None) -> None:
            answer = self.answers.get(subject)
            if answer is None or reply is None:
                unanswered(connection, subject, reply)
                return
            now = self.broker.now
            body = {"server": self.server(now), "data": answer(connection, now)}
            self.broker.publish(reply, None, b"", msgspec.json.encode(body))

        vars(self.broker)["on_no_receivers"] = respond

    def server(self, now: int) -> dict[str, Any]:
        """Who answers."""
        identity = self.broker.identity
        self.answered += 1
        return {
            "name": identity.server_name,
            "host": identity.host,
            "id": identity.server_id,
            "ver": self.broker.rules.version,
            "jetstream": isinstance(self.broker.service, JetStream),
            "flags": 0,
            "seq": self.answered,
            "time": format_time(now),
        }

    def user_info(self, connection: NatsClientConnection, now: int) -> dict[str, Any]:
        """``permissions`` only of a user who has some."""
        options = connection.options
        user = {"user": options.user or options.nkey or "", "account": connection.account}
        if self.broker.config.level >= NAMED_SINCE:
            user["account_name"] = connection.account
        configured = connection.permits and connection.permits.permissions
        return user | ({"permissions": permission_fields(configured)} if configured else {})

    def connz(self, connection: NatsClientConnection, now: int) -> dict[str, Any]:
        return self.monitor.connz({"acc": self.account, "subs": "true"}, now)

    def statz(self, connection: NatsClientConnection, now: int) -> dict[str, Any]:
        return self.monitor.accstatz({"acc": self.account}, now)


def permission_fields(permissions: Permissions) -> dict[str, Any]:
    """``ttl`` in nanoseconds; what is not restricted is left out."""
    sides = {"publish": permissions.publish, "subscribe": permissions.subscribe}
    fields: dict[str, Any] = {name: shown for name, side in sides.items() if (shown := _side(side))}
    if (responses := permissions.allow_responses) is not None:
        fields["responses"] = {"max": responses.max_msgs, "ttl": round(responses.expires * NS)}
    return fields


def _side(permission: Permission) -> dict[str, list[str]]:
    lists = {"allow": permission.allow or (), "deny": permission.deny}
    return {name: sorted(subjects) for name, subjects in lists.items() if subjects}
