"""What an AMQP broker is configured with, in the names of ``rabbitmq.conf``. Times are seconds.

Source: RabbitMQ, "Configuration"; defaults are those of RabbitMQ 3.10, but for the port: 0 takes a free one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field, json

from plumbline.errors import UNDECODABLE, PlumblineError
from plumbline.untrusted import read_file

NS = 1_000_000_000
DEFAULT_USER = "guest"
LOGINS = ("distinguished_name", "common_name")  # what a client certificate names its user with


class ConfigError(PlumblineError, ValueError):
    """A configuration that cannot be used; the text says why."""


class Permission(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may do in a virtual host: regular expressions for names of exchanges and queues."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


class TopicPermission(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may do with a topic exchange: regular expressions for routing keys of messages and of
    bindings, in which ``{username}`` and ``{vhost}`` stand for his."""

    write: str = ".*"
    read: str = ".*"


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``ssl_options``. Files are paths."""

    certfile: str
    keyfile: str
    cacertfile: str = ""
    password: str = ""  # of the key
    verify: bool = False  # ask for a certificate of the client
    required: bool = False  # refuse a client without one
    login_from: str = LOGINS[0]
    verify_flags: int = 0  # of OpenSSL, beside those that it has anyway


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole broker."""

    host: str = "127.0.0.1"
    port: int = 0
    users: dict[str, str] = field(default_factory=lambda: {DEFAULT_USER: DEFAULT_USER})  # name -> password
    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of users, for the management API
    vhosts: tuple[str, ...] = ("/",)
    permissions: dict[str, dict[str, Permission]] | None = None  # user -> virtual host; None: everybody's all
    topic_permissions: dict[str, dict[str, dict[str, TopicPermission]]] = field(
        default_factory=dict
    )  # user -> virtual host -> exchange
    loopback_users: tuple[str, ...] = ()  # who may log in from this machine only
    auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    handshake_timeout: float = 10.0
    refusal_delay: float = 3.0  # how long a client that was refused has until its socket is closed
    close_timeout: float = 30.0  # how long connection.close-ok may take
    max_message_size: int = 134217728
    consumer_timeout: float = 1800.0  # how long a consumer's delivery may stay without an acknowledgement
    data_dir: str | None = None  # None: nothing survives
    max_pending: int = 4 * 1024 * 1024  # unread bytes beyond which a connection is sent no more deliveries
    write_deadline: float = 30.0
    queue_types: tuple[str, ...] = ("classic",)  # "quorum" may be there, too: on one node
    tls: TlsSettings | None = None  # then its port is one with TLS
    product: str = "Plumbline reference broker"  # what it calls itself in connection.start
    confirms: str = ""  # a script of confirms, as ``confirm_script`` reads it; "": as they come

    @classmethod
    def of(cls, **options: Any) -> Config:
        """From keyword arguments. Raises ``ConfigError``."""
        try:
            return convert(options, cls)
        except ValidationError as error:
            raise ConfigError(str(error)) from None


def settings_of_file(path: Path | None) -> dict[str, Any]:
    """The fields of a ``Config`` in a JSON file; none without one. Raises ``ConfigError``."""
    if path is None:
        return {}
    try:
        fields = json.decode(read_file(path), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UNDECODABLE as error:
        raise ConfigError(f"{path}: write one JSON object ({error})") from None
    return fields
