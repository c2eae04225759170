"""Users, and what each of them may do in which virtual host. No rules of a method here.

Source: RabbitMQ, "Access Control" ("How Permissions Work", "Topic Authorisation").
"""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from ipaddress import ip_address

from plumbline.reference_broker.amqp.config import Config, ConfigError, Permission, TopicPermission
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.errors import ACCESS_REFUSED, AmqpReplyError, quoted
from plumbline.reference_broker.amqp.passwords import PasswordHash

CONFIGURE, WRITE, READ = "configure", "write", "read"
ALL = Permission()
DEFAULT_EXCHANGE = "amq.default"  # the name of the default exchange in permissions
TOPIC = "topic"  # the type of exchange whose routing keys have permissions
NOTHING = "$^"  # what an empty pattern means: no name


class User:
    """``password`` of None or "": only a certificate can be used."""

    def __init__(self, name: str, password: str | PasswordHash | None, tags: tuple[str, ...] = ()) -> None:
        self.name = name
        self.password = password
        self.tags = tags


class Access:
    """Who may log in, enter a virtual host, and configure, write or read what is in it.

    ``permissions`` are by virtual host and user, those for topics also by exchange. Raises ``ConfigError``
    for a pattern that is none.
    """

    def __init__(self, config: Config) -> None:
        self.users = {
            name: User(name, password, config.tags.get(name, ())) for name, password in config.users.items()
        }
        self.local_users = config.loopback_users
        self.usual = ALL if config.permissions is None else None
        self.permissions: dict[tuple[str, str], Permission] = {}
        for user, own in (config.permissions or {}).items():
            for vhost, permission in own.items():
                self.permit(vhost, user, permission)
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        for user, hosts in config.topic_permissions.items():
            for vhost, exchanges in hosts.items():
                for exchange, keys in exchanges.items():
                    self.permit_topics(vhost, user, exchange, keys)

    def permit(self, vhost: str, user: str, permission: Permission) -> None:
        """Raises ``ConfigError`` for a pattern that is none."""
        _check_patterns(permission.configure, permission.write, permission.read)
        self.permissions[vhost, user] = permission

    def permit_topics(self, vhost: str, user: str, exchange: str, keys: TopicPermission) -> None:
        """Raises ``ConfigError`` for a pattern that is none."""
        _check_patterns(keys.write, keys.read)
        self.topic_permissions[vhost, user, exchange] = keys

    def forget(self, *, user: str | None = None, vhost: str | None = None) -> None:
        """The permissions of a user, or those in a virtual host."""
        for key in [key for key in self.permissions if key[0] == vhost or key[1] == user]:
            del self.permissions[key]
        for topic in [topic for topic in self.topic_permissions if topic[0] == vhost or topic[1] == user]:
            del self.topic_permissions[topic]

    def admits(self, user: str, password: str) -> bool:
        known = self.users.get(user)
        if known is None or not known.password:
            return False
        if isinstance(known.password, PasswordHash):
            return known.password.matches(password)
        stored, given = (text.encode("utf-8", "surrogateescape") for text in (known.password, password))
        return hmac.compare_digest(stored, given)

    def may_come_from(self, user: str, peer: str) -> bool:
        """Whether the user may log in from this address."""
        return user not in self.local_users or _is_loopback(peer)

    def permission(self, vhost: str, user: str) -> Permission | None:
        return self.permissions.get((vhost, user), self.usual)

    def enter(self, connection: AmqpClientConnection, vhost: str) -> bool:
        """Whether the connection's user may use the virtual host; from now on it may do what he may."""
        permission = self.permission(vhost, connection.user)
        connection.permission = None if permission == ALL else permission
        return permission is not None

    def check(self, connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
        """``kind`` is exchange or queue. Raises ``AmqpReplyError`` (403)."""
        if connection.permission is not None and not self.allows(connection.permission, right, name):
            what = quoted(kind, name or DEFAULT_EXCHANGE, connection.vhost)
            text = f"access to {what} refused for user '{connection.user}'"
            raise AmqpReplyError(ACCESS_REFUSED, text)

    def allows(self, permission: Permission, right: str, name: str) -> bool:
        """An empty pattern is for no name at all."""
        pattern: str = getattr(permission, right)
        return _compiled(pattern).search(name or DEFAULT_EXCHANGE) is not None

    def check_topic(
        self, connection: AmqpClientConnection, right: str, exchange: str, kind: str, key: str
    ) -> None:
        """The same for a routing key and an exchange of type ``kind``: who has no permission for topics of
        that exchange may use all. Raises ``AmqpReplyError`` (403)."""
        keys = self.topic_permissions.get((connection.vhost, connection.user, exchange))
        if kind != TOPIC or keys is None:
            return
        pattern = self.with_variables(getattr(keys, right), connection)
        if _compiled(pattern).search(key) is None:
            what = quoted("exchange", exchange, connection.vhost)
            text = f"access to topic '{key}' in {what} refused for user '{connection.user}'"
            raise AmqpReplyError(ACCESS_REFUSED, text)

    def with_variables(self, pattern: str, connection: AmqpClientConnection) -> str:
        """A pattern for routing keys, for this user in this virtual host."""
        return pattern.replace("{username}", connection.user).replace("{vhost}", connection.vhost)


def _check_patterns(*patterns: str) -> None:
    """Raises ``ConfigError``."""
    for pattern in patterns:
        try:
            _compiled(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"'{pattern}' is no regular expression: {error}") from None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern or NOTHING)


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
