"""Definitions: users, virtual hosts, permissions, queues, exchanges and bindings in one JSON object. Pure.

Source: RabbitMQ, "Schema Definition Export and Import".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.amqp.connections.handshake import SERVER_PROPERTIES
from plumbline.reference_broker.amqp.drop_in.access_pages import AccessPages
from plumbline.reference_broker.amqp.drop_in.internal_client import InternalClient, internal_client
from plumbline.reference_broker.amqp.drop_in.requests import (
    DONE,
    ApiError,
    Reply,
    Request,
    Routes,
    bad_request,
    switch_of,
    table_of,
    text_of,
)
from plumbline.reference_broker.amqp.drop_in.topology_pages import (
    TopologyPages,
    binding_fields,
    exchange_fields,
)
from plumbline.reference_broker.amqp.topology.exchanges import PREDECLARED, Binding

QUEUE_FIELDS = ("name", "vhost", "durable", "auto_delete", "arguments")
EXCHANGE_FIELDS = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
BINDING_FIELDS = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments")
WITHOUT_EFFECT = ("policies", "parameters")


class Definitions:
    """Exports and imports. ``warn`` gets a sentence for what has no effect."""

    def __init__(self, access: AccessPages, topology: TopologyPages, warn: Callable[[str], None]) -> None:
        self.broker = access.broker
        self.access = access
        self.topology = topology
        self.warn = warn

    def routes(self) -> Routes:
        whole = {"GET": self.export, "POST": self.load, "PUT": self.load}
        return {"definitions": whole, "definitions/:": whole}

    # Export

    def export(self, request: Request) -> Reply:
        request.require_administrator()
        found = self.objects(request)
        if request.names:
            for one in (one for objects in found.values() for one in objects):
                del one["vhost"]
        else:
            found = {
                "users": [
                    self.access.user_fields(one) for _, one in sorted(self.broker.access.users.items())
                ],
                "vhosts": [
                    {"name": self.access.vhost_fields(name)["name"]} for name in sorted(self.broker.vhosts)
                ],
                "permissions": self.access.permission_fields(lambda vhost, user: True),
                "topic_permissions": self.access.topic_permission_fields(),
                **found,
            }
        version = SERVER_PROPERTIES["version"]
        start: dict[str, Any] = {"rabbit_version": version, "parameters": [], "policies": []}
        if not request.names:
            start |= {"rabbitmq_version": version, "product_name": "RabbitMQ", "product_version": version}
        return Reply(content={**start, **found})

    def objects(self, request: Request) -> dict[str, list[dict[str, Any]]]:
        """What is durable, in the virtual host of the path or in all."""
        queues, exchanges, bindings = [], [], []
        for vhost in self.topology.vhosts(request):
            kept = {name for name, one in vhost.queues.items() if one.durable and not one.exclusive}
            kept_exchanges = {name for name, one in vhost.exchanges.items() if one.durable}
            queues += [self.topology.queue_fields(vhost.queues[name], {}) for name in sorted(kept)]
            for name in sorted(kept_exchanges):
                exchange = vhost.exchanges[name]
                if name not in PREDECLARED:
                    exchanges.append(exchange_fields(vhost.name, exchange))
                bindings += [
                    binding_fields(vhost.name, one)
                    for one in exchange.bindings.values()
                    if one.destination in (kept if one.to_queue else kept_exchanges)
                ]
        return {
            "queues": [_only(QUEUE_FIELDS, one) for one in queues],
            "exchanges": [_only(EXCHANGE_FIELDS, one) for one in exchanges],
            "bindings": [_only(BINDING_FIELDS, one) for one in bindings],
        }

    # Import

    def load(self, request: Request) -> Reply:
        request.require_administrator()
        try:
            fields = request.fields()
        except ApiError:
            raise bad_request("failed_to_parse_json") from None
        self.apply(fields, request.now, request.names[0] if request.names else None)
        return Reply(DONE)

    def read(self, data: bytes, now: int) -> None:
        """A file. Raises ``ApiError``."""
        try:
            fields = msgspec.json.decode(data, type=dict[str, Any])
        except UNDECODABLE as error:
            raise bad_request(f"it is no JSON object: {error}") from None
        self.apply(fields, now, None)

    def apply(self, fields: Mapping[str, Any], now: int, vhost: str | None) -> None:
        """Of the whole broker, or what is in one virtual host. Raises ``ApiError``."""
        administration = self.access.administration
        for kind in WITHOUT_EFFECT:
            if fields.get(kind):
                self.warn(f"the {kind} of the definitions have no effect in this server")
        if vhost is None:
            for one in _objects(fields, "users"):
                administration.put_user(text_of(one, "name"), one)
            for one in _objects(fields, "vhosts"):
                administration.put_vhost(text_of(one, "name"))
            for one in _objects(fields, "permissions"):
                administration.put_permission(text_of(one, "vhost"), text_of(one, "user"), one)
            for one in _objects(fields, "topic_permissions"):
                administration.put_topic_permission(text_of(one, "vhost"), text_of(one, "user"), one)
        for kind, add in (("exchanges", _add_exchange), ("queues", _add_queue), ("bindings", _add_binding)):
            for one in _objects(fields, kind):
                where = vhost or text_of(one, "vhost")
                if where not in self.broker.vhosts:
                    raise bad_request(f"there is no vhost '{where}'")
                with internal_client(self.broker, where, None, now) as client:
                    add(client, one)


def _add_exchange(client: InternalClient, fields: Mapping[str, Any]) -> None:
    client.call(
        "exchange.declare",
        exchange=text_of(fields, "name"),
        type=text_of(fields, "type"),
        durable=switch_of(fields, "durable"),
        auto_delete=switch_of(fields, "auto_delete"),
        internal=switch_of(fields, "internal"),
        arguments=table_of(fields, "arguments"),
    )


def _add_queue(client: InternalClient, fields: Mapping[str, Any]) -> None:
    client.call(
        "queue.declare",
        queue=text_of(fields, "name"),
        durable=switch_of(fields, "durable"),
        auto_delete=switch_of(fields, "auto_delete"),
        arguments=table_of(fields, "arguments"),
    )


def _add_binding(client: InternalClient, fields: Mapping[str, Any]) -> None:
    is_queue = text_of(fields, "destination_type") == "queue"
    key, arguments = text_of(fields, "routing_key"), table_of(fields, "arguments")
    client.bind(Binding(text_of(fields, "source"), is_queue, text_of(fields, "destination"), key, arguments))


def _objects(fields: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Raises ``ApiError``."""
    found = fields.get(kind) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise bad_request(f"{kind} is no list of objects")
    return found


def _only(names: tuple[str, ...], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in names}
