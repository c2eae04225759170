"""Users, virtual hosts and permissions in the management API. Pure.

Source: RabbitMQ, "Management HTTP API", "Access Control".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plumbline.reference_broker.amqp.access import User
from plumbline.reference_broker.amqp.config import ConfigError, Permission, TopicPermission
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.drop_in.requests import (
    CREATED,
    DONE,
    Reply,
    Request,
    Routes,
    bad_request,
    not_found,
    plain,
    require,
    text_of,
)
from plumbline.reference_broker.amqp.errors import CONNECTION_FORCED
from plumbline.reference_broker.amqp.lifecycle import Phase
from plumbline.reference_broker.amqp.passwords import ALGORITHMS, SHA256, PasswordHash
from plumbline.reference_broker.amqp.topology.exchanges import PREDECLARED, VirtualHost

RIGHTS = ("configure", "write", "read")
NOTHING = Permission("", "", "")


class Administration:
    """Changes of users, virtual hosts and permissions. ``new_salt`` gives the salt of a password."""

    def __init__(self, broker: Broker, new_salt: Callable[[], bytes]) -> None:
        self.broker = broker
        self.new_salt = new_salt

    def put_user(self, name: str, fields: Mapping[str, Any]) -> None:
        """With a password, the hash of one, or neither. Raises ``ApiError``."""
        if "tags" not in fields:
            raise bad_request("tags_not_present")
        tags = fields["tags"]
        if isinstance(tags, str):
            tags = tags.split(",")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise bad_request("tags is a text or a list of texts")
        password: PasswordHash | None = None
        if fields.get("password"):
            password = PasswordHash.of(text_of(fields, "password"), self.new_salt())
        elif fields.get("password_hash"):
            algorithm = text_of(fields, "hashing_algorithm", SHA256)
            if algorithm not in ALGORITHMS:
                raise bad_request(f"there is no hashing algorithm {algorithm}")
            password = PasswordHash(_hash_of(text_of(fields, "password_hash")), algorithm)
        self.broker.access.users[name] = User(
            name, password, tuple(tag.strip() for tag in tags if tag.strip())
        )

    def delete_user(self, name: str, now: int) -> None:
        access = self.broker.access
        del access.users[name]
        access.forget(user=name)
        self._close(lambda one: one.user == name, f"user '{name}' is deleted", now)

    def put_vhost(self, name: str) -> None:
        self.broker.vhosts.setdefault(name, VirtualHost(name))

    def delete_vhost(self, name: str, now: int) -> None:
        """With all that is in it."""
        self._close(lambda one: one.vhost == name, f"vhost '{name}' is deleted", now)
        vhost, topology = self.broker.vhosts[name], self.broker.topology
        for queue in list(vhost.queues.values()):
            topology.remove_queue(queue)
        for exchange in list(vhost.exchanges.values()):
            if exchange.name not in PREDECLARED:
                topology.remove_exchange(vhost, exchange)
        del self.broker.vhosts[name]
        self.broker.access.forget(vhost=name)

    def put_permission(self, vhost: str, user: str, fields: Mapping[str, Any]) -> None:
        """Also for who is connected. Raises ``ApiError``."""
        if vhost not in self.broker.vhosts or user not in self.broker.access.users:
            raise bad_request("vhost_or_user_not_found")
        require(fields, *RIGHTS)
        permission = Permission(**{right: text_of(fields, right) for right in RIGHTS})
        try:
            self.broker.access.permit(vhost, user, permission)
        except ConfigError as error:
            raise bad_request(str(error)) from None
        self._renew(vhost, user)

    def put_topic_permission(self, vhost: str, user: str, fields: Mapping[str, Any]) -> None:
        """Of one exchange, which need not be there. Raises ``ApiError``."""
        if vhost not in self.broker.vhosts or user not in self.broker.access.users:
            raise bad_request(f"there is no user '{user}' or no vhost '{vhost}'")
        keys = TopicPermission(write=text_of(fields, "write"), read=text_of(fields, "read"))
        try:
            self.broker.access.permit_topics(vhost, user, text_of(fields, "exchange"), keys)
        except ConfigError as error:
            raise bad_request(str(error)) from None

    def delete_permission(self, vhost: str, user: str) -> None:
        """Who is connected may do nothing more."""
        del self.broker.access.permissions[vhost, user]
        self._renew(vhost, user)

    def _renew(self, vhost: str, user: str) -> None:
        for connection in self.broker.connections.values():
            is_meant = (connection.vhost, connection.user) == (vhost, user)
            if is_meant and not self.broker.access.enter(connection, vhost):
                connection.permission = NOTHING

    def _close(self, is_meant: Callable[[AmqpClientConnection], bool], reason: str, now: int) -> None:
        for connection in list(self.broker.connections.values()):
            if connection.phase is Phase.RUNNING and is_meant(connection):
                close_connection(self.broker, connection, reason, now)


def close_connection(broker: Broker, connection: AmqpClientConnection, reason: str, now: int) -> None:
    """With 320, as an operator does."""
    wait = broker.config.close_timeout
    broker.closing.close(connection, CONNECTION_FORCED, reason, (0, 0), wait, now)


def _hash_of(text: str) -> str:
    """Raises ``ApiError``."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(["not_base64", text]) from None
    return text


class AccessPages:
    """Who there is, and who may do what."""

    def __init__(self, broker: Broker, administration: Administration, node: str) -> None:
        self.broker = broker
        self.node = node
        self.access = broker.access
        self.administration = administration

    def routes(self) -> Routes:
        permission: Mapping[str, Any] = {
            "GET": self.show_permission,
            "PUT": self.put_permission,
            "DELETE": self.delete_permission,
        }
        return {
            "whoami": {"GET": self.whoami},
            "users": {"GET": self.list_users},
            "users/bulk-delete": {"POST": self.delete_users},
            "users/without-permissions": {"GET": self.list_users_without_permissions},
            "users/:": {"GET": self.show_user, "PUT": self.put_user, "DELETE": self.delete_user},
            "users/:/permissions": {"GET": self.permissions_of_user},
            "vhosts": {"GET": self.list_vhosts},
            "vhosts/:": {"GET": self.show_vhost, "PUT": self.put_vhost, "DELETE": self.delete_vhost},
            "vhosts/:/permissions": {"GET": self.permissions_of_vhost},
            "permissions": {"GET": self.list_permissions},
            "permissions/:/:": permission,
        }

    def whoami(self, request: Request) -> Reply:
        return Reply(content={"name": plain(request.user.name), "tags": list(request.user.tags)})

    # Users

    def user(self, request: Request) -> User:
        """Raises ``ApiError``."""
        request.require_administrator()
        user = self.access.users.get(request.names[0])
        if user is None:
            raise not_found()
        return user

    def list_users(self, request: Request) -> Reply:
        request.require_administrator()
        return Reply(content=[self.user_fields(one) for _, one in sorted(self.access.users.items())])

    def list_users_without_permissions(self, request: Request) -> Reply:
        request.require_administrator()
        has_some = {user for _, user in self.access.permissions}
        users = [one for name, one in sorted(self.access.users.items()) if name not in has_some]
        return Reply(content=[self.user_fields(one) for one in users])

    def show_user(self, request: Request) -> Reply:
        return Reply(content=self.user_fields(self.user(request)))

    def user_fields(self, user: User) -> dict[str, Any]:
        """As in definitions: with the hash of the password."""
        password = user.password
        if isinstance(password, str):  # of the configuration
            password = user.password = PasswordHash.of(password, self.administration.new_salt())
        return {
            "name": plain(user.name),
            "password_hash": password.text if password is not None else "",
            "hashing_algorithm": password.algorithm if password is not None else SHA256,
            "tags": list(user.tags),
            "limits": {},
        }

    def put_user(self, request: Request) -> Reply:
        request.require_administrator()
        name = request.names[0]
        is_new = name not in self.access.users
        self.administration.put_user(name, request.fields())
        return Reply(CREATED if is_new else DONE)

    def delete_user(self, request: Request) -> Reply:
        self.administration.delete_user(self.user(request).name, request.now)
        return Reply(DONE)

    def delete_users(self, request: Request) -> Reply:
        request.require_administrator()
        fields = request.fields()
        require(fields, "users")
        names = fields["users"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise bad_request("users is a list of names")
        for name in names:
            if name in self.access.users:
                self.administration.delete_user(name, request.now)
        return Reply(DONE)

    # Virtual hosts

    def vhost(self, request: Request) -> str:
        """Raises ``ApiError``."""
        if request.names[0] not in self.broker.vhosts:
            raise not_found()
        return request.names[0]

    def list_vhosts(self, request: Request) -> Reply:
        names = [
            name
            for name in sorted(self.broker.vhosts)
            if request.is_monitor or self.access.permission(name, request.user.name) is not None
        ]
        return Reply(content=[self.vhost_fields(name) for name in names])

    def show_vhost(self, request: Request) -> Reply:
        return Reply(content=self.vhost_fields(self.vhost(request)))

    def vhost_fields(self, name: str) -> dict[str, Any]:
        return {
            **self.messages_in(name),
            "name": plain(name),
            "description": "",
            "tags": [],
            "tracing": False,
            "default_queue_type": "classic",
            "cluster_state": {self.node: "running"},
            "metadata": {"description": "", "tags": []},
        }

    def messages_in(self, vhost: str) -> dict[str, int]:
        """How many there are; nothing where there is no queue."""
        queues = self.broker.vhosts[vhost].queues.values()
        if not queues:
            return {}
        ready = sum(len(queue.ready) for queue in queues)
        waiting = sum(
            len(channel.outstanding)
            for connection in self.broker.connections.values()
            if connection.vhost == vhost
            for channel in connection.channels.values()
        )
        return {
            "messages": ready + waiting,
            "messages_ready": ready,
            "messages_unacknowledged": waiting,
        }

    def put_vhost(self, request: Request) -> Reply:
        request.require_administrator()
        name = request.names[0]
        is_new = name not in self.broker.vhosts
        self.administration.put_vhost(name)
        if is_new:  # who makes it may use it
            everything = dict.fromkeys(RIGHTS, ".*")
            self.administration.put_permission(name, request.user.name, everything)
        return Reply(CREATED if is_new else DONE)

    def delete_vhost(self, request: Request) -> Reply:
        request.require_administrator()
        self.administration.delete_vhost(self.vhost(request), request.now)
        return Reply(DONE)

    # Permissions

    def permission_fields(self, is_meant: Callable[[str, str], bool]) -> list[dict[str, Any]]:
        return [
            {"user": plain(user), "vhost": plain(vhost), **msgspec.structs.asdict(permission)}
            for (vhost, user), permission in sorted(self.access.permissions.items(), key=lambda one: one[0])
            if is_meant(vhost, user)
        ]

    def topic_permission_fields(self) -> list[dict[str, Any]]:
        return [
            {
                "user": plain(user),
                "vhost": plain(vhost),
                "exchange": plain(exchange),
                **msgspec.structs.asdict(keys),
            }
            for (vhost, user, exchange), keys in sorted(
                self.access.topic_permissions.items(), key=lambda one: one[0]
            )
        ]

    def list_permissions(self, request: Request) -> Reply:
        request.require_administrator()
        return Reply(content=self.permission_fields(lambda vhost, user: True))

    def permissions_of_user(self, request: Request) -> Reply:
        name = self.user(request).name
        return Reply(content=self.permission_fields(lambda vhost, user: user == name))

    def permissions_of_vhost(self, request: Request) -> Reply:
        request.require_administrator()
        name = self.vhost(request)
        return Reply(content=self.permission_fields(lambda vhost, user: vhost == name))

    def show_permission(self, request: Request) -> Reply:
        request.require_administrator()
        found = self.permission_fields(lambda vhost, user: [vhost, user] == request.names)
        if not found:
            raise not_found()
        return Reply(content=found[0])

    def put_permission(self, request: Request) -> Reply:
        request.require_administrator()
        vhost, user = request.names
        is_new = (vhost, user) not in self.access.permissions
        self.administration.put_permission(vhost, user, request.fields())
        return Reply(CREATED if is_new else DONE)

    def delete_permission(self, request: Request) -> Reply:
        request.require_administrator()
        vhost, user = request.names
        if (vhost, user) not in self.access.permissions:
            raise not_found()
        self.administration.delete_permission(vhost, user)
        return Reply(DONE)
