"""What the broker remembers of one connection and of one subscription.

No rule of the protocol stands here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.auth import ConnectionPermissions, Credentials
from plumbline.wire.nats import Decoder


class ConnectOptions(Struct, frozen=True, rename={"password": "pass", "signature": "sig"}):
    """The fields of CONNECT that a server heeds. Defaults hold until CONNECT comes.

    docs.nats.io, "Client Protocol", "CONNECT".
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    signature: str = ""
    jwt: str = ""
    account: str = ""
    new_account: bool = False
    name: str = ""
    lang: str = ""
    version: str = ""

    def updated(self, fields: dict[str, Any]) -> ConnectOptions:
        """With the fields of another CONNECT; null leaves a field alone.

        Raises ``msgspec.ValidationError`` if a field has the wrong type.
        """
        fields_given = {name: value for name, value in fields.items() if value is not None}
        return msgspec.convert({**msgspec.to_builtins(self), **fields_given}, ConnectOptions)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.user, self.password, self.auth_token, self.nkey, self.signature, self.jwt)


class Subscription(Struct, eq=False, gc=False):
    """One SUB that is in use. ``special`` marks what cannot be delivered to without looking.

    Not seen by the garbage collector, which would stop the broker for as long as it looks at all of them:
    the router forgets a subscription when its connection ends, so no cycle stays.
    """

    connection: NatsClientConnection
    sid: bytes
    subject: bytes
    queue: bytes | None
    out: list[bytes]  # the connection's
    delivered: int = 0
    max_msgs: int = 0  # UNSUB sid max; 0 for none
    filtered: bool = False  # matches subjects that the user may not receive
    special: bool = False


class NatsClientConnection:
    """One client. ``out`` is what the current event has it sent, in order."""

    __slots__ = (
        "account",
        "awaiting_auth",
        "closing",
        "connected",
        "decoder",
        "first_pong_sent",
        "guarded",
        "headers",
        "id",
        "last_received",
        "nonce",
        "options",
        "out",
        "peer",
        "permits",
        "pings_out",
        "started",
        "subscriptions",
        "was_pinged",
    )

    def __init__(self, connection_id: int, peer: str, decoder: Decoder) -> None:
        self.id = connection_id
        self.account = "$G"  # of its user, once CONNECT has come
        self.peer = peer
        self.decoder = decoder
        self.out: list[bytes] = []
        self.subscriptions: dict[bytes, Subscription] = {}
        self.options = ConnectOptions()
        self.permits: ConnectionPermissions | None = None
        self.nonce: str | None = None  # what an NKey user has to sign
        self.awaiting_auth = False
        self.connected = False  # CONNECT came
        self.headers = False  # both sides know headers
        self.guarded = True  # a publish needs more than routing: verbose, pedantic, or permissions
        self.first_pong_sent = False
        self.pings_out = 0
        self.was_pinged = False
        self.started = 0  # when the client connected
        self.last_received = 0  # when the client last sent something other than an answer
        self.closing = False
