"""The INFO a server sends: of itself, and of the connection it sends it on.

Source: docs.nats.io, "Client Protocol", "INFO". Fields and their order are nats-server's.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.levels import CoreRules

BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
ID_LENGTH = 56
PROTO = 1  # the server may send INFO at any time
ACCOUNT = "$G"


def make_id(kind: str, choose: Callable[[int], int]) -> str:
    """An identity as a public key would be spelled: ``N...`` for a server."""
    return kind + "".join(BASE32[choose(len(BASE32))] for _ in range(ID_LENGTH - len(kind)))


def make_nonce(choose: Callable[[int], int]) -> str:
    """What an NKey user has to sign: 11 bytes in base64."""
    return base64.urlsafe_b64encode(bytes(choose(256) for _ in range(11))).decode().rstrip("=")


class Identity:
    """Who the server is, for as long as it runs."""

    def __init__(self, config: Config, rules: CoreRules, choose: Callable[[int], int]) -> None:
        self.server_id = make_id("N", choose)
        self.server_name = config.server_name or f"plumbline-{self.server_id[:10]}"
        self.host = config.host
        self.port = config.port  # the shell sets the true one once it listens
        self.offers: dict[str, Any] = {}  # what the shell adds, such as ``tls_required``
        self.offers_elsewhere: dict[int, dict[str, Any]] = {}  # the same of single connections
        self.config = config
        self._rules = rules

    def fields(self, connection: NatsClientConnection) -> dict[str, Any]:
        """What INFO says, before and after CONNECT; what does not hold is left out."""
        config, rules = self.config, self._rules
        fields = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": rules.version,
            "proto": PROTO,
            "go": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "host": self.host,
            "port": self.port,
            "headers": not config.no_header_support,
            "auth_required": config.asks_for_credentials or None,
            **self.offers_elsewhere.get(connection.id, self.offers),
            "max_payload": config.max_payload,
            "jetstream": config.jetstream is not None or None,
            "domain": config.jetstream.domain if config.jetstream is not None else None,
            "client_id": connection.id,
            "client_ip": connection.peer,
            "nonce": connection.nonce,
            "api_lvl": rules.api_level or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def client_fields(self, connection: NatsClientConnection | None) -> dict[str, Any]:
        """Who a client is, as JetStream's advisories tell it; ``start`` is in nanoseconds."""
        account = ACCOUNT if connection is None else connection.account
        fields: dict[str, Any] = {"acc": account, "server": self.server_name}
        if connection is None or not self._rules.advisories_name_clients:
            return fields
        options = connection.options
        own = {
            "start": connection.started,
            "host": connection.peer,
            "id": connection.id,
            "user": options.user,
            "name": options.name,
            "lang": options.lang,
            "ver": options.version,
        }
        named = {name: value for name, value in own.items() if value}
        return named | fields | {"kind": "Client", "client_type": "nats"}

    def connect_fields(self, connection: NatsClientConnection) -> dict[str, Any]:
        """What INFO says once the client is in: the account it is bound to, too."""
        return {**self.fields(connection), "connect_info": True, "remote_account": connection.account}
