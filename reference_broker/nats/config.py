"""What a broker is configured with, in the names of nats-server's configuration file.

``Config`` is a value; nothing here touches a socket. Times are seconds here, as in that file, and
nanoseconds everywhere else. Source: docs.nats.io, "Server Configuration".
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from plumbline.errors import PlumblineError
from plumbline.reference_broker.nats.levels import NEWEST, Level

NS = 1_000_000_000


class ConfigError(PlumblineError, ValueError):
    """A configuration that cannot be used; the text says where and what to write instead."""


class Permission(Struct, frozen=True, forbid_unknown_fields=True):
    """What one direction allows and denies. ``allow`` of None is everything; a deny overrules.

    A subscribe entry may name a queue group after a blank: ``"orders.> workers"``.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponsePermission(Struct, frozen=True, forbid_unknown_fields=True):
    """To publish to the reply subject of what was received: how often, and for how many seconds.

    A negative number is no limit.
    """

    max_msgs: int = 1
    expires: float = 120.0


class Permissions(Struct, frozen=True, forbid_unknown_fields=True):
    """docs.nats.io, "Authorization"."""

    publish: Permission = Permission()
    subscribe: Permission = Permission()
    allow_responses: ResponsePermission | None = None


class User(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who may connect, by name and password or by NKey.

    ``permissions`` of None takes the default permissions.
    """

    user: str = ""
    password: str = ""
    nkey: str | None = None
    permissions: Permissions | None = None


class Authorization(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may connect: one user, one token, or a list of users. Empty: everybody."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    timeout: float = 2.0  # how long a connection may take to send CONNECT
    users: tuple[User, ...] = ()
    default_permissions: Permissions | None = None

    @property
    def required(self) -> bool:
        return self.user is not None or self.token is not None or bool(self.users)


class AccountLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """What JetStream grants an account; -1 is no limit. docs.nats.io, "JetStream Account Limits"."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class Export(Struct, frozen=True, forbid_unknown_fields=True):
    """Subjects that other accounts may import; ``accounts`` of None are all.

    ``response_type``: of a service, whether a request has one answer or any number.
    """

    kind: Literal["stream", "service"]
    subject: str
    accounts: tuple[str, ...] | None = None
    response_type: Literal["singleton", "stream"] = "singleton"


class Import(Struct, frozen=True, forbid_unknown_fields=True):
    """Subjects of another account; ``to`` is their name in this one."""

    kind: Literal["stream", "service"]
    account: str
    subject: str
    to: str


class Destination(Struct, frozen=True, forbid_unknown_fields=True):
    """``weight``: percent of the messages."""

    subject: str
    weight: int = 100


class SubjectMapping(Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that clients publish on ``source`` go to one of the destinations, drawn by weight."""

    source: str
    destinations: tuple[Destination, ...]


class Role(Struct, frozen=True, forbid_unknown_fields=True):
    """What a signing key of an account makes its users: their own claims do not count."""

    permissions: Permissions | None = None
    bearer: bool = False


class Account(Struct, frozen=True, forbid_unknown_fields=True):
    """Users with subjects and streams of their own. Without ``jetstream`` it has no streams.

    In operator mode ``name`` is its public key, and it signs for its users. So do its ``signing_keys``; with
    one that has no role, the user's own claims count. ``revocations``: users, and the second until which what
    was issued is void.
    """

    name: str
    users: tuple[User, ...] = ()
    default_permissions: Permissions | None = None
    jetstream: AccountLimits | None = None
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()
    signing_keys: dict[str, Role | None] = field(default_factory=dict)
    revocations: dict[str, int] = field(default_factory=dict)


class JetStreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The ``jetstream`` block. The two limits are taken so that configurations can be shared with a real
    server, and change nothing.

    Without ``store_dir`` streams in files are in memory as well. What is acknowledged is written; how soon
    that is on the disk, and outlives the machine, is ``sync_interval``: ``always`` before it is acknowledged,
    every so many seconds, or ``never``, which leaves it to the operating system.
    """

    store_dir: str | None = None
    max_memory_store: int = -1
    max_file_store: int = -1
    domain: str | None = None
    sync_interval: float | Literal["always", "never"] = 120.0
    limits: AccountLimits = AccountLimits()


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole broker. Defaults are nats-server's, but for the port: 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    server_name: str | None = None  # None: made from the server id
    level: Level = NEWEST
    jetstream: JetStreamOptions | None = None
    authorization: Authorization = field(default_factory=Authorization)
    accounts: tuple[Account, ...] = ()  # besides the global one
    mappings: tuple[SubjectMapping, ...] = ()  # of the global account
    no_auth_user: str | None = None  # whom a client is that gives no credentials
    system_account: str | None = None
    operator_mode: bool = False  # users come with JWTs, which their accounts have signed
    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_connections: int = 64 * 1024
    max_subscriptions: int = 0  # per connection; 0 for no limit
    max_pending: int = 64 * 1024 * 1024  # unread bytes beyond which a connection is a slow consumer
    write_deadline: float = 10.0
    ping_interval: float = 120.0
    ping_max: int = 2
    no_header_support: bool = False

    @property
    def users(self) -> tuple[User, ...]:
        """Those of all accounts."""
        return self.authorization.users + tuple(user for one in self.accounts for user in one.users)

    @property
    def asks_for_credentials(self) -> bool:
        """Whether a client without credentials is refused."""
        required = self.authorization.required or any(one.users for one in self.accounts)
        return self.operator_mode or (required and self.no_auth_user is None)

    @classmethod
    def of(cls, **options: Any) -> Config:
        """From keyword arguments that may also be plain values: ``level="2.9"``, ``jetstream=True``."""
        from plumbline.reference_broker.nats.config_file import convert

        return convert(options)
