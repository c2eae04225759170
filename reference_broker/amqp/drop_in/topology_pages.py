"""Queues, exchanges, bindings and messages in the management API. Pure.

Source: RabbitMQ, "Management HTTP API".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from plumbline.bounds import MANAGEMENT_MESSAGES
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.drop_in.internal_client import internal_client
from plumbline.reference_broker.amqp.drop_in.requests import (
    CREATED,
    DONE,
    ApiError,
    Reply,
    Request,
    Routes,
    bad_request,
    missing,
    not_found,
    number_of,
    plain,
    require,
    switch_of,
    table_of,
    text_of,
)
from plumbline.reference_broker.amqp.topology.exchanges import PREDECLARED, Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method
from plumbline.wire.amqp.properties import PROPERTIES

ACK_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
ENCODINGS = ("auto", "base64")
SERVER_ITSELF = "rmq-internal"  # made what is predeclared; who made what else there is, is not remembered


class TopologyPages:
    """What there is in virtual hosts."""

    def __init__(self, broker: Broker, node: str) -> None:
        self.broker = broker
        self.node = node

    def routes(self) -> Routes:
        return {
            "queues": {"GET": self.list_queues},
            "queues/:": {"GET": self.list_queues},
            "queues/:/:": {"GET": self.show_queue, "PUT": self.declare_queue, "DELETE": self.delete_queue},
            "queues/:/:/bindings": {"GET": self.bindings_of_queue},
            "queues/:/:/contents": {"DELETE": self.purge_queue},
            "queues/:/:/get": {"POST": self.get_messages},
            "exchanges": {"GET": self.list_exchanges},
            "exchanges/:": {"GET": self.list_exchanges},
            "exchanges/:/:": {
                "GET": self.show_exchange,
                "PUT": self.declare_exchange,
                "DELETE": self.delete_exchange,
            },
            "exchanges/:/:/bindings/source": {"GET": self.bindings_from},
            "exchanges/:/:/bindings/destination": {"GET": self.bindings_to},
            "exchanges/:/:/publish": {"POST": self.publish},
            "bindings": {"GET": self.list_bindings},
            "bindings/:": {"GET": self.list_bindings},
            "bindings/:/e/:/:/:": {"GET": self.bindings_between, "POST": self.bind},
            "bindings/:/e/:/:/:/:": {"GET": self.show_binding, "DELETE": self.unbind},
            "consumers": {"GET": self.list_consumers},
            "consumers/:": {"GET": self.list_consumers},
        }

    def vhosts(self, request: Request) -> Iterator[VirtualHost]:
        """Those of the path, or those that the user sees. Raises ``ApiError``."""
        if request.names:
            yield self.vhost(request.names[0])
            return
        for name, vhost in sorted(self.broker.vhosts.items()):
            if request.is_monitor or self.broker.access.permission(name, request.user.name) is not None:
                yield vhost

    def vhost(self, name: str, otherwise: ApiError | None = None) -> VirtualHost:
        """Raises ``ApiError``: ``otherwise``, or that it is not there."""
        if name not in self.broker.vhosts:
            raise otherwise or not_found()
        return self.broker.vhosts[name]

    # Queues

    def queue(self, request: Request) -> Queue:
        """Raises ``ApiError``."""
        queue = self.vhost(request.names[0]).queues.get(request.names[1])
        if queue is None:
            raise not_found()
        return queue

    def list_queues(self, request: Request) -> Reply:
        unacked = self.unacknowledged()
        queues = [queue for vhost in self.vhosts(request) for _, queue in sorted(vhost.queues.items())]
        return Reply(content=[self.queue_fields(queue, unacked) for queue in queues])

    def show_queue(self, request: Request) -> Reply:
        queue = self.queue(request)
        details = {
            "consumer_details": [self.consumer_fields(one) for one in queue.consumers],
            "incoming": [],
            "deliveries": [],
        }
        return Reply(content={**self.queue_fields(queue, self.unacknowledged()), **details})

    def unacknowledged(self) -> Counter[Queue]:
        """How many messages of each queue are delivered and not settled."""
        return Counter(
            delivery.queue
            for connection in self.broker.connections.values()
            for channel in connection.channels.values()
            for delivery in channel.outstanding.values()
        )

    def queue_fields(self, queue: Queue, unacked: Mapping[Queue, int]) -> dict[str, Any]:
        ready, waiting = len(queue.ready), unacked.get(queue, 0)
        still = {"rate": 0.0}
        return {
            "name": plain(queue.name),
            "vhost": plain(queue.vhost),
            "type": queue.kind,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive,
            "arguments": plain(queue.arguments),
            "node": self.node,
            "state": "running",
            "policy": None,
            "operator_policy": None,
            "effective_policy_definition": {},
            "consumers": len(queue.consumers),
            "messages": ready + waiting,
            "messages_details": still,
            "messages_ready": ready,
            "messages_ready_details": still,
            "messages_unacknowledged": waiting,
            "messages_unacknowledged_details": still,
            "messages_persistent": len(queue.durable_entries),
        }

    def declare_queue(self, request: Request) -> Reply:
        vhost, name = request.names
        fields = request.fields()
        arguments = table_of(fields, "arguments")
        is_new = name not in self.vhost(vhost, missing("vhost_not_found")).queues
        with internal_client(self.broker, vhost, request.user.name, request.now) as client:
            client.call(
                "queue.declare",
                queue=name,
                durable=switch_of({"durable": True, **fields}, "durable"),
                auto_delete=switch_of(fields, "auto_delete"),
                arguments=arguments,
            )
        return Reply(CREATED if is_new else DONE)

    def delete_queue(self, request: Request) -> Reply:
        queue = self.queue(request)
        with internal_client(self.broker, queue.vhost, request.user.name, request.now) as client:
            client.call(
                "queue.delete",
                queue=queue.name,
                if_unused=request.query.get("if-unused") == "true",
                if_empty=request.query.get("if-empty") == "true",
            )
        return Reply(DONE)

    def purge_queue(self, request: Request) -> Reply:
        queue = self.queue(request)
        with internal_client(self.broker, queue.vhost, request.user.name, request.now) as client:
            client.call("queue.purge", queue=queue.name)
        return Reply(DONE)

    # Messages

    def publish(self, request: Request) -> Reply:
        vhost, exchange = request.names
        fields = request.fields()
        require(fields, "routing_key", "properties", "payload", "payload_encoding")
        payload, encoding = text_of(fields, "payload"), fields["payload_encoding"]
        if encoding == "base64":
            try:
                body = base64.b64decode(payload, validate=True)
            except (binascii.Error, ValueError):
                raise bad_request(["not_base64", payload]) from None
        elif encoding != "string":
            raise bad_request(["unsupported_encoding", encoding])
        else:
            body = payload.encode("utf-8", "surrogatepass")
        properties = table_of(fields, "properties")
        if unknown := sorted(set(properties) - set(PROPERTIES)):
            raise bad_request(f"there is no property {unknown[0]}")
        with internal_client(self.broker, vhost, request.user.name, request.now) as client:
            answers = client.call(
                "basic.publish",
                exchange=_named(exchange),
                routing_key=text_of(fields, "routing_key"),
                mandatory=True,
                properties=properties,
                body=body,
            )
        return Reply(content={"routed": not any(one.method == "basic.return" for one in answers)})

    def get_messages(self, request: Request) -> Reply:
        vhost, name = request.names
        queue = self.vhost(vhost).queues.get(name)
        if queue is None:
            raise missing(f"NOT_FOUND - no queue '{plain(name)}' in vhost '{plain(vhost)}'")
        fields = request.fields()
        require(fields, "ackmode", "count", "encoding")
        count = number_of(fields, "count", 1)
        mode = text_of(fields, "ackmode", ACK_MODES[0])
        encoding = text_of(fields, "encoding", ENCODINGS[0])
        longest = number_of(fields, "truncate", MANAGEMENT_MESSAGES)
        if mode not in ACK_MODES:
            raise bad_request(f"ackmode is one of {', '.join(ACK_MODES)}")
        if encoding not in ENCODINGS:
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        found: list[dict[str, Any]] = []
        left = MANAGEMENT_MESSAGES
        with internal_client(self.broker, queue.vhost, request.user.name, request.now) as client:
            tags = []
            while len(found) < count and left > 0:
                answer = client.call("basic.get", queue=queue.name)[0]
                if answer.method == "basic.get-empty":
                    break
                tags.append(answer.arguments["delivery_tag"])
                found.append(_message_fields(answer, encoding, longest))
                left -= min(len(answer.body), longest)
            for tag in tags:
                if mode == "ack_requeue_false":
                    client.call("basic.ack", delivery_tag=tag)
                else:
                    client.call("basic.reject", delivery_tag=tag, requeue=mode.endswith("true"))
        return Reply(content=found)

    # Exchanges

    def exchange(self, request: Request) -> Exchange:
        """Raises ``ApiError``."""
        exchange = self.vhost(request.names[0]).exchanges.get(_named(request.names[1]))
        if exchange is None:
            raise not_found()
        return exchange

    def list_exchanges(self, request: Request) -> Reply:
        return Reply(
            content=[
                exchange_fields(vhost.name, exchange)
                for vhost in self.vhosts(request)
                for _, exchange in sorted(vhost.exchanges.items())
            ]
        )

    def show_exchange(self, request: Request) -> Reply:
        return Reply(content=exchange_fields(request.names[0], self.exchange(request)))

    def declare_exchange(self, request: Request) -> Reply:
        vhost, name = request.names
        fields = request.fields()
        is_new = name not in self.vhost(vhost, missing("vhost_not_found")).exchanges
        with internal_client(self.broker, vhost, request.user.name, request.now) as client:
            client.call(
                "exchange.declare",
                exchange=name,
                type=text_of(fields, "type", "direct"),
                durable=switch_of({"durable": True, **fields}, "durable"),
                auto_delete=switch_of(fields, "auto_delete"),
                internal=switch_of(fields, "internal"),
                arguments=table_of(fields, "arguments"),
            )
        return Reply(CREATED if is_new else DONE)

    def delete_exchange(self, request: Request) -> Reply:
        exchange = self.exchange(request)
        with internal_client(self.broker, request.names[0], request.user.name, request.now) as client:
            is_careful = request.query.get("if-unused") == "true"
            client.call("exchange.delete", exchange=exchange.name, if_unused=is_careful)
        return Reply(DONE)

    # Bindings

    def list_bindings(self, request: Request) -> Reply:
        shown = [
            binding_fields(vhost.name, one) for vhost in self.vhosts(request) for one in all_bindings(vhost)
        ]
        return Reply(content=shown)

    def bindings_of_queue(self, request: Request) -> Reply:
        name = self.queue(request).name
        return self.some_bindings(request, lambda one: one.to_queue and one.destination == name)

    def bindings_from(self, request: Request) -> Reply:
        name = self.exchange(request).name
        return self.some_bindings(request, lambda one: one.source == name)

    def bindings_to(self, request: Request) -> Reply:
        name = self.exchange(request).name
        return self.some_bindings(request, lambda one: not one.to_queue and one.destination == name)

    def some_bindings(self, request: Request, is_meant: Callable[[Binding], bool]) -> Reply:
        vhost = self.vhost(request.names[0])
        return Reply(
            content=[binding_fields(vhost.name, one) for one in all_bindings(vhost) if is_meant(one)]
        )

    def between(self, request: Request) -> list[Binding]:
        """The bindings from the exchange to the queue or exchange of the path. Raises ``ApiError``."""
        vhost, source, kind, destination = request.names[:4]
        host = self.vhost(vhost)
        if kind not in ("q", "e"):
            raise not_found()
        wanted = (_named(source), kind == "q", destination)
        return [one for one in all_bindings(host) if (one.source, one.to_queue, one.destination) == wanted]

    def bindings_between(self, request: Request) -> Reply:
        return Reply(content=[binding_fields(request.names[0], one) for one in self.between(request)])

    def binding(self, request: Request) -> Binding:
        """The one that the end of the path names. Raises ``ApiError``."""
        for one in self.between(request):
            key = properties_key(one)
            if request.names[4] in (key, unquote(key)):
                return one
        raise not_found()

    def show_binding(self, request: Request) -> Reply:
        return Reply(content=binding_fields(request.names[0], self.binding(request)))

    def bind(self, request: Request) -> Reply:
        vhost, source, kind, destination = request.names
        host = self.vhost(vhost, missing("vhost_not_found"))
        if _named(source) not in host.exchanges:
            raise missing(f"no exchange '{plain(source)}' in vhost '{plain(vhost)}'")
        places: dict[str, tuple[str, Container[str]]] = {
            "q": ("queue", host.queues),
            "e": ("exchange", host.exchanges),
        }
        if kind not in places:
            raise not_found()
        what, known = places[kind]
        if destination not in known:
            raise missing(f"no {what} '{plain(destination)}' in vhost '{plain(vhost)}'")
        fields = request.fields()
        key, arguments = text_of(fields, "routing_key", ""), table_of(fields, "arguments")
        binding = Binding(_named(source), kind == "q", destination, key, arguments)
        with internal_client(self.broker, vhost, request.user.name, request.now) as client:
            client.bind(binding)
        location = f"{quote(destination, safe='')}/{quote(properties_key(binding), safe='')}"
        return Reply(CREATED, headers={"Location": location})

    def unbind(self, request: Request) -> Reply:
        binding = self.binding(request)
        with internal_client(self.broker, request.names[0], request.user.name, request.now) as client:
            client.unbind(binding)
        return Reply(DONE)

    # Consumers

    def list_consumers(self, request: Request) -> Reply:
        return Reply(
            content=[
                self.consumer_fields(consumer)
                for vhost in self.vhosts(request)
                for queue in vhost.queues.values()
                for consumer in queue.consumers
            ]
        )

    def consumer_fields(self, consumer: QueueConsumer) -> dict[str, Any]:
        queue, channel = consumer.queue, consumer.channel
        is_single = queue.single_active and consumer is not queue.consumers[0]
        return {
            "consumer_tag": plain(consumer.tag),
            "queue": {"name": plain(queue.name), "vhost": plain(queue.vhost)},
            "channel_details": {"number": channel.number, "user": plain(channel.connection.user)},
            "ack_required": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "prefetch_count": consumer.prefetch,
            "active": not is_single,
            "activity_status": "waiting" if is_single else "up",
            "arguments": {"x-priority": consumer.priority} if consumer.priority else {},
        }


def exchange_fields(vhost: str, exchange: Exchange) -> dict[str, Any]:
    """One exchange."""
    maker = {"user_who_performed_action": SERVER_ITSELF} if exchange.name in PREDECLARED else {}
    return {
        "name": plain(exchange.name),
        "vhost": plain(vhost),
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain(exchange.arguments),
        **maker,
    }


def binding_fields(vhost: str, binding: Binding) -> dict[str, Any]:
    """One binding."""
    return {
        "source": plain(binding.source),
        "vhost": plain(vhost),
        "destination": plain(binding.destination),
        "destination_type": "queue" if binding.to_queue else "exchange",
        "routing_key": plain(binding.routing_key),
        "arguments": plain(binding.arguments),
        "properties_key": properties_key(binding),
    }


def all_bindings(vhost: VirtualHost) -> list[Binding]:
    """Also those of each queue to the default exchange."""
    usual = [Binding("", True, name, name, {}) for name in sorted(vhost.queues)]
    return usual + [one for exchange in vhost.exchanges.values() for one in exchange.bindings.values()]


def properties_key(binding: Binding) -> str:
    """What names one of several bindings between the same two, in a path."""
    key = quote_plus(binding.routing_key, safe="", errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    digest = hashlib.sha256(binding.key[-1]).digest()[:15]
    return f"{key}~{base64.urlsafe_b64encode(digest).decode()}"


def _named(exchange: str) -> str:
    """The default exchange has a name in paths."""
    return "" if exchange == "amq.default" else exchange


def _message_fields(answer: Method, encoding: str, longest: int) -> dict[str, Any]:
    """A message that basic.get has answered."""
    body = answer.body[:longest]
    try:
        text, kind = body.decode(), "string"
    except UnicodeDecodeError:
        encoding = "base64"
    if encoding == "base64":
        text, kind = base64.b64encode(body).decode(), "base64"
    arguments = answer.arguments
    return {
        "payload_bytes": len(answer.body),
        "redelivered": arguments["redelivered"],
        "exchange": plain(arguments["exchange"]),
        "routing_key": plain(arguments["routing_key"]),
        "message_count": arguments["message_count"],
        "properties": plain(answer.properties or {}),
        "payload": text,
        "payload_encoding": kind,
    }
