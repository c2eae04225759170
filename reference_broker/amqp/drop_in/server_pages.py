"""The server itself, its connections and its health in the management API. Pure.

Source: RabbitMQ, "Management HTTP API", "Monitoring" ("Health Checks").
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.connections.handshake import SERVER_PROPERTIES
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.drop_in.access_pages import close_connection
from plumbline.reference_broker.amqp.drop_in.internal_client import internal_client
from plumbline.reference_broker.amqp.drop_in.requests import (
    DONE,
    Reply,
    Request,
    Routes,
    bad_request,
    not_found,
    plain,
)
from plumbline.reference_broker.amqp.lifecycle import Phase
from plumbline.reference_broker.amqp.topology.exchanges import TYPES
from plumbline.wire.units import read_number

MILLISECOND = 1_000_000
ALIVENESS_QUEUE = "aliveness-test"
CLOSED = "Closed via management plugin"


FEATURE_FLAGS = {  # of RabbitMQ 3.10 those of what this broker has: name -> description, page
    "implicit_default_bindings": (
        "Default bindings are now implicit, instead of being stored in the database", "",
    ),
    "quorum_queue": ("Support queues of type `quorum`", "https://www.rabbitmq.com/quorum-queues.html"),
    "virtual_host_metadata": ("Virtual host metadata (description, tags, etc)", ""),
}  # fmt: skip


class Process:
    """What the shell knows of its process and its sockets."""

    def __init__(self) -> None:
        self.address: Callable[[int], tuple[str, int]] = lambda connection: ("", 0)  # of a client
        self.local: Callable[[int], tuple[str, int]] = lambda connection: ("", 0)  # the same socket, our side
        self.is_tls: Callable[[int], bool] = lambda connection: False
        self.ports: dict[str, tuple[str, int]] = {}  # where it listens: amqp, amqp/ssl, http
        self.pid = 0


class ServerPages:
    """Overview, nodes, connections, channels, health."""

    def __init__(self, broker: Broker, node: str, process: Process, started: int) -> None:
        self.broker = broker
        self.node = node
        self.process = process
        self.started = started

    def routes(self) -> Routes:
        fine = {"GET": self.healthy}
        connection = {"GET": self.show_connection, "DELETE": self.close_connection}
        return {
            "overview": {"GET": self.overview},
            "cluster-name": {"GET": self.cluster_name},
            "nodes": {"GET": self.list_nodes},
            "nodes/:": {"GET": self.show_node},
            "extensions": {"GET": self.nothing},
            "feature-flags": {"GET": self.feature_flags},
            "feature-flags/:/enable": {"PUT": self.enable_feature_flag},
            "connections": {"GET": self.list_connections},
            "connections/:": connection,
            "connections/:/channels": {"GET": self.channels_of_connection},
            "vhosts/:/connections": {"GET": self.connections_of_vhost},
            "channels": {"GET": self.list_channels},
            "policies": {"GET": self.nothing},
            "policies/:": {"GET": self.nothing},
            "operator-policies": {"GET": self.nothing},
            "vhost-limits": {"GET": self.nothing},
            "parameters": {"GET": self.nothing},
            "global-parameters": {"GET": self.nothing},
            "topic-permissions": {"GET": self.nothing},
            "aliveness-test/:": {"GET": self.aliveness},
            "healthchecks/node": fine,
            "health/checks/alarms": {"GET": self.alarms},
            "health/checks/local-alarms": {"GET": self.alarms},
            "health/checks/virtual-hosts": fine,
            "health/checks/node-is-mirror-sync-critical": {"GET": self.lone_node},
            "health/checks/node-is-quorum-critical": {"GET": self.lone_node},
            "health/checks/certificate-expiration/:/:": fine,
            "health/checks/port-listener/:": {"GET": self.port_listener},
            "health/checks/protocol-listener/:": {"GET": self.protocol_listener},
        }

    def nothing(self, request: Request) -> Reply:
        """Lists of what this server has not."""
        return Reply(content=[])

    # The server

    def feature_flags(self, request: Request) -> Reply:
        """What can be enabled; all is."""
        request.require_administrator()
        return Reply(
            content=[
                {
                    "name": name,
                    "desc": description,
                    "doc_url": page,
                    "state": "enabled",
                    "stability": "stable",
                    "provided_by": "rabbit",
                }
                for name, (description, page) in FEATURE_FLAGS.items()
            ]
        )

    def enable_feature_flag(self, request: Request) -> Reply:
        """Nothing is to be done for one that there is. Raises ``ApiError``."""
        request.require_administrator()
        if request.names[0] not in FEATURE_FLAGS:
            raise bad_request("unsupported")
        return Reply(DONE)

    def overview(self, request: Request) -> Reply:
        vhosts = self.broker.vhosts.values()
        queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
        running = self.running()
        unacked = sum(
            len(channel.outstanding) for connection in running for channel in connection.channels.values()
        )
        ready = sum(len(queue.ready) for queue in queues)
        version = SERVER_PROPERTIES["version"]
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Reply(
            content={
                "management_version": version,
                "rabbitmq_version": version,
                "product_name": "RabbitMQ",
                "product_version": version,
                "cluster_name": SERVER_PROPERTIES["cluster_name"],
                "erlang_version": f"python {python}",
                "node": self.node,
                "rates_mode": "none",
                "exchange_types": [{"name": kind, "enabled": True} for kind in TYPES],
                "object_totals": {
                    "connections": len(running),
                    "channels": sum(len(one.channels) for one in running),
                    "queues": len(queues),
                    "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
                    "consumers": sum(len(queue.consumers) for queue in queues),
                },
                "queue_totals": {
                    "messages": ready + unacked,
                    "messages_ready": ready,
                    "messages_unacknowledged": unacked,
                },
                "message_stats": {},
                "listeners": self.listeners(),
                "contexts": [],
            }
        )

    def listeners(self) -> list[dict[str, Any]]:
        return [
            {"node": self.node, "protocol": protocol, "ip_address": host, "port": port}
            for protocol, (host, port) in self.process.ports.items()
        ]

    def cluster_name(self, request: Request) -> Reply:
        return Reply(content={"name": SERVER_PROPERTIES["cluster_name"]})

    def node_fields(self, now: int) -> dict[str, Any]:
        return {
            "name": self.node,
            "type": "disc",
            "running": True,
            "os_pid": str(self.process.pid),
            "uptime": (now - self.started) // MILLISECOND,
            "mem_alarm": self.broker.blocking.reason is not None,
            "disk_free_alarm": False,
            "partitions": [],
            "enabled_plugins": ["rabbitmq_management"],
        }

    def list_nodes(self, request: Request) -> Reply:
        request.require_monitor()
        return Reply(content=[self.node_fields(request.now)])

    def show_node(self, request: Request) -> Reply:
        request.require_monitor()
        if request.names != [self.node]:
            raise not_found()
        return Reply(content=self.node_fields(request.now))

    # Connections and channels

    def running(self) -> list[AmqpClientConnection]:
        return [one for one in self.broker.connections.values() if one.phase is Phase.RUNNING]

    def visible(self, request: Request) -> list[AmqpClientConnection]:
        """A user sees his own, a monitor all."""
        return [one for one in self.running() if request.is_monitor or one.user == request.user.name]

    def name_of(self, connection: AmqpClientConnection) -> str:
        ends = (self.process.address(connection.id), self.process.local(connection.id))
        return " -> ".join(f"{host}:{port}" for host, port in ends)

    def connection(self, request: Request) -> AmqpClientConnection:
        """Raises ``ApiError``."""
        for one in self.visible(request):
            if self.name_of(one) == request.names[0]:
                return one
        raise not_found()

    def connection_fields(self, connection: AmqpClientConnection) -> dict[str, Any]:
        (peer, peer_port), (host, port) = (
            self.process.address(connection.id),
            self.process.local(connection.id),
        )
        properties = plain(connection.properties)
        given_name = properties.get("connection_name")
        return {
            "name": self.name_of(connection),
            **({"user_provided_name": given_name} if given_name else {}),
            "node": self.node,
            "user": plain(connection.user),
            "vhost": plain(connection.vhost),
            "state": "running",
            "type": "network",
            "protocol": "AMQP 0-9-1",
            "auth_mechanism": plain(connection.mechanism),
            "ssl": self.process.is_tls(connection.id),
            "peer_host": peer,
            "peer_port": peer_port,
            "host": host,
            "port": port,
            "channels": len(connection.channels),
            "channel_max": connection.channel_max,
            "frame_max": connection.frame_max,
            "timeout": connection.heartbeat // NS,
            "connected_at": connection.connected // MILLISECOND,
            "client_properties": properties,
        }

    def list_connections(self, request: Request) -> Reply:
        return Reply(content=[self.connection_fields(one) for one in self.visible(request)])

    def connections_of_vhost(self, request: Request) -> Reply:
        if request.names[0] not in self.broker.vhosts:
            raise not_found()
        found = [one for one in self.visible(request) if one.vhost == request.names[0]]
        return Reply(content=[self.connection_fields(one) for one in found])

    def show_connection(self, request: Request) -> Reply:
        return Reply(content=self.connection_fields(self.connection(request)))

    def close_connection(self, request: Request) -> Reply:
        reason = request.headers.get("x-reason") or CLOSED
        close_connection(self.broker, self.connection(request), reason, request.now)
        return Reply(DONE)

    def channel_fields(self, channel: Channel) -> dict[str, Any]:
        connection = channel.connection
        name = self.name_of(connection)
        return {
            "name": f"{name} ({channel.number})",
            "number": channel.number,
            "connection_details": {"name": name},
            "node": self.node,
            "user": plain(connection.user),
            "vhost": plain(connection.vhost),
            "state": "running",
            "confirm": channel.confirms,
            "transactional": channel.transaction is not None,
            "prefetch_count": channel.prefetch,
            "global_prefetch_count": channel.limit,
            "consumer_count": len(channel.consumers),
            "messages_unacknowledged": len(channel.outstanding),
        }

    def list_channels(self, request: Request) -> Reply:
        channels = [channel for one in self.visible(request) for channel in one.channels.values()]
        return Reply(content=[self.channel_fields(one) for one in channels])

    def channels_of_connection(self, request: Request) -> Reply:
        channels = self.connection(request).channels.values()
        return Reply(content=[self.channel_fields(one) for one in channels])

    # Health

    def healthy(self, request: Request) -> Reply:
        return Reply(content={"status": "ok"})

    def lone_node(self, request: Request) -> Reply:
        return Reply(content={"status": "ok", "reason": "single node cluster"})

    def alarms(self, request: Request) -> Reply:
        reason = self.broker.blocking.reason
        if reason is None:
            return self.healthy(request)
        alarms = [{"node": self.node, "resource": reason}]
        return Reply(503, {"status": "failed", "reason": "resource alarm(s) in effect", "alarms": alarms})

    def port_listener(self, request: Request) -> Reply:
        wanted = read_number(request.names[0])
        if wanted is None:
            raise bad_request(f"{request.names[0]} is no port")
        return self._listener(wanted, [port for _, port in self.process.ports.values()], "port")

    def protocol_listener(self, request: Request) -> Reply:
        name = {"amqp091": "amqp", "amqps": "amqp/ssl"}.get(request.names[0], request.names[0])
        return self._listener(name, list(self.process.ports), "protocol")

    def _listener(self, wanted: Any, found: list[Any], kind: str) -> Reply:
        if wanted in found:
            return Reply(content={"status": "ok", kind: wanted})
        fields = {"status": "failed", "reason": "No active listener", "missing": wanted, f"{kind}s": found}
        return Reply(503, fields)

    def aliveness(self, request: Request) -> Reply:
        """Sends a message through a queue, as RabbitMQ does. Raises ``ApiError``."""
        with internal_client(self.broker, request.names[0], request.user.name, request.now) as client:
            client.call("queue.declare", queue=ALIVENESS_QUEUE)
            client.call("basic.publish", routing_key=ALIVENESS_QUEUE, body=b"test_message")
            answer = client.call("basic.get", queue=ALIVENESS_QUEUE, no_ack=True)[0]
        is_alive = answer.method == "basic.get-ok"
        return Reply(content={"status": "ok" if is_alive else "failed"})
