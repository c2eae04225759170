"""What nats-server serves over HTTP: ``/varz``, ``/connz`` and so on, with its names of fields. Pure.

Source: docs.nats.io, "Monitoring NATS".
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from plumbline.reference_broker.nats.config import NS
from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.drop_in.options import Settings
from plumbline.reference_broker.nats.drop_in.traffic import Traffic
from plumbline.reference_broker.nats.info import ACCOUNT, PROTO
from plumbline.reference_broker.nats.jetstream.api import consumers as consumer_api
from plumbline.reference_broker.nats.jetstream.api import streams as stream_api
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.wire.nats.jetstream.times import format_time
from plumbline.wire.units import read_number

DEFAULT_LIMIT = 1024  # entries of a list
SYSTEM_ACCOUNT = "$SYS"
ENDPOINTS = (
    "varz", "jsz", "connz", "accountz", "accstatz", "subsz", "routez", "leafz", "gatewayz", "healthz",
)  # fmt: skip

Query = Mapping[str, str]


class Process:
    """What the shell knows of its process and its sockets."""

    def __init__(self) -> None:
        self.resident_bytes: Callable[[], int] = lambda: 0
        self.cores = 1
        self.address: Callable[[int], tuple[str, int]] = lambda connection: ("", 0)
        self.pending: Callable[[int], int] = lambda connection: 0
        self.kind: Callable[[int], str] = lambda connection: "nats"
        self.websocket_port = 0
        self.monitor_port = 0


class Monitor:
    """Answers of one server. ``brokers`` are its accounts by name."""

    def __init__(
        self,
        settings: Settings,
        brokers: Mapping[str, Broker],
        traffic: Traffic,
        process: Process,
        started: int,
    ) -> None:
        self.settings = settings
        self.brokers = brokers
        self.traffic = traffic
        self.process = process
        self.started = started
        self.requests: dict[str, int] = {}

    def answer(self, path: str, query: Query, now: int) -> tuple[int, str, bytes]:
        """Status, type and body."""
        name = path.removeprefix(self.settings.http_base_path.rstrip("/")).strip("/")
        self.requests[f"/{name}"] = self.requests.get(f"/{name}", 0) + 1
        if not name:
            links = "".join(f"<a href=./{one}>{one}</a><br>" for one in ENDPOINTS)
            return 200, "text/html; charset=utf-8", f"<html><body>{links}</body></html>".encode()
        known: dict[str, Callable[[Query, int], dict[str, Any]]] = {
            "varz": self.varz, "connz": self.connz, "jsz": self.jsz, "subsz": self.subsz,
            "subscriptionsz": self.subsz, "accountz": self.accountz, "accstatz": self.accstatz,
            "routez": self.routez, "leafz": self.leafz, "gatewayz": self.gatewayz,
        }  # fmt: skip
        if name == "healthz":
            return self.healthz(query)
        if name not in known:
            return 404, "text/plain; charset=utf-8", b"404 page not found\n"
        body = msgspec.json.format(msgspec.json.encode(known[name](query, now)), indent=2)
        if callback := query.get("callback"):
            return 200, "application/javascript", b"%b(%b)" % (callback.encode(), body)
        return 200, "application/json", body

    # One method for each page

    @property
    def broker(self) -> Broker:
        return next(iter(self.brokers.values()))

    def head(self, now: int) -> dict[str, Any]:
        return {"server_id": self.broker.identity.server_id, "now": format_time(now)}

    def varz(self, query: Query, now: int) -> dict[str, Any]:
        settings, config, broker = self.settings, self.settings.config, self.broker
        total = self.traffic.total
        authorization = config.authorization
        connections = [one for each in self.brokers.values() for one in each.connections.values()]
        fields = {
            "server_id": broker.identity.server_id,
            "server_name": broker.identity.server_name,
            "version": broker.rules.version,
            "proto": PROTO,
            "go": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "host": config.host,
            "port": broker.identity.port,
            "auth_required": config.asks_for_credentials or None,
            "tls_required": (settings.tls is not None and not settings.allow_non_tls) or None,
            "tls_verify": (settings.tls is not None and settings.tls.verify) or None,
            "max_connections": config.max_connections,
            "ping_interval": round(config.ping_interval * NS),
            "ping_max": config.ping_max,
            "http_host": (settings.monitor and settings.monitor.host) or config.host,
            "http_port": self.process.monitor_port,
            "http_base_path": settings.http_base_path,
            "https_port": 0,
            "auth_timeout": authorization.timeout,
            "max_control_line": config.max_control_line,
            "max_payload": config.max_payload,
            "max_pending": config.max_pending,
            "cluster": {},
            "gateway": {},
            "leaf": {},
            "mqtt": {},
            "websocket": self._websocket(),
            "jetstream": self._jetstream(),
            "tls_timeout": settings.tls.timeout if settings.tls else 2,
            "write_deadline": round(config.write_deadline * NS),
            "start": format_time(self.started),
            "now": format_time(now),
            "uptime": uptime(now - self.started),
            "mem": self.process.resident_bytes(),
            "cores": self.process.cores,
            "gomaxprocs": 1,
            "cpu": 0,
            "connections": len(connections),
            "total_connections": self.traffic.opened,
            "routes": 0,
            "remotes": 0,
            "leafnodes": 0,
            "in_msgs": total.in_msgs,
            "in_bytes": total.in_bytes,
            "out_msgs": total.out_msgs,
            "out_bytes": total.out_bytes,
            "in_client_msgs": total.in_msgs,
            "in_client_bytes": total.in_bytes,
            "out_client_msgs": total.out_msgs,
            "out_client_bytes": total.out_bytes,
            "slow_consumers": self.traffic.slow,
            "stale_connections": self.traffic.stale,
            "subscriptions": sum(len(one.subscriptions) for one in connections),
            "http_req_stats": dict(self.requests),
            "config_load_time": format_time(self.started),
            "system_account": SYSTEM_ACCOUNT,
            "slow_consumer_stats": {"clients": self.traffic.slow, "routes": 0, "gateways": 0, "leafs": 0},
            "stale_connection_stats": {"clients": self.traffic.stale, "routes": 0, "gateways": 0, "leafs": 0},
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _websocket(self) -> dict[str, Any]:
        options = self.settings.websocket
        if options is None:
            return {}
        fields = {"host": options.host, "port": self.process.websocket_port}
        return fields | ({"no_tls": True} if options.no_tls else {"tls_timeout": 2})

    def _services(self) -> dict[str, JetStream]:
        """JetStream of each account that has it."""
        return {
            name: broker.service
            for name, broker in self.brokers.items()
            if isinstance(broker.service, JetStream)
        }

    def _jetstream_config(self) -> dict[str, Any]:
        options = self.settings.config.jetstream
        if options is None:
            return {}
        sync = options.sync_interval
        fields: dict[str, Any] = {
            "max_memory": options.max_memory_store,
            "max_storage": options.max_file_store,
            "store_dir": f"{options.store_dir}/jetstream" if options.store_dir else "",
            "sync_interval": round(sync * NS) if isinstance(sync, int | float) else 0,
            "strict": True,
        }
        return fields | ({"domain": options.domain} if options.domain else {})

    def _jetstream_stats(self, services: Sequence[JetStream]) -> dict[str, Any]:
        streams = [stream for service in services for stream in service.streams.values()]
        used = {
            kind: sum(stream.store.size for stream in streams if stream.config.storage == kind)
            for kind in ("memory", "file")
        }
        api = [service.api for service in services]
        return {
            "memory": used["memory"],
            "storage": used["file"],
            "reserved_memory": 0,
            "reserved_storage": 0,
            "accounts": len(services),
            "ha_assets": 0,
            "api": {
                "level": self.broker.rules.api_level,
                "total": sum(one.total for one in api),
                "errors": sum(one.failed for one in api),
            },
        }

    def _jetstream(self) -> dict[str, Any]:
        services = self._services()
        if not services:
            return {}
        return {"config": self._jetstream_config(), "stats": self._jetstream_stats(list(services.values()))}

    def jsz(self, query: Query, now: int) -> dict[str, Any]:
        services = self._services()
        streams = [stream for service in services.values() for stream in service.streams.values()]
        fields = self._jetstream_stats(list(services.values())) | self.head(now)
        if not services:
            return fields | {"disabled": True, "streams": 0, "consumers": 0, "messages": 0, "bytes": 0}
        fields |= {
            "config": self._jetstream_config(),
            "limits": {},
            "streams": len(streams),
            "consumers": sum(len(stream.consumers) for stream in streams),
            "messages": sum(len(stream.store) for stream in streams),
            "bytes": sum(stream.store.size for stream in streams),
            "total": len(services),
        }
        wanted = query.get("acc")
        if wanted or _asked(query, "accounts") or _asked(query, "streams") or _asked(query, "consumers"):
            fields["account_details"] = [
                self._account_detail(name, service, query, now)
                for name, service in services.items()
                if wanted in (None, "", name)
            ]
        return fields

    def _account_detail(self, name: str, service: JetStream, query: Query, now: int) -> dict[str, Any]:
        stats = self._jetstream_stats([service])
        fields = {"name": name, "id": name, **stats, "accounts": 0}
        if _asked(query, "streams") or _asked(query, "consumers"):
            fields["stream_detail"] = [
                self._stream_detail(stream, query, now) for stream in service.streams.values()
            ]
        return fields

    def _stream_detail(self, stream: Any, query: Query, now: int) -> dict[str, Any]:
        fields = {
            "name": stream.config.name,
            "created": format_time(stream.created),
            "cluster": {"leader": self.broker.identity.server_name},
        }
        if _asked(query, "config"):
            fields["config"] = stream.config
        fields["state"] = stream_api.state(stream)
        if _asked(query, "consumers"):
            fields["consumer_detail"] = [consumer_api.describe(one, now) for one in stream.consumers.values()]
        return fields

    def connz(self, query: Query, now: int) -> dict[str, Any]:
        wanted = read_number(query["cid"]) if "cid" in query else None
        account = query.get("acc")
        found = [
            (name, one)
            for name, broker in self.brokers.items()
            for one in broker.connections.values()
            if wanted in (None, one.id) and account in (None, name)
        ]
        found.sort(key=lambda entry: entry[1].id)
        if query.get("state") == "closed":
            found = []
        offset, limit = _number(query, "offset", 0), _number(query, "limit", DEFAULT_LIMIT)
        page = found[offset : offset + limit]
        return self.head(now) | {
            "num_connections": len(page),
            "total": len(found),
            "offset": offset,
            "limit": limit,
            "connections": [self._connection(name, one, query, now) for name, one in page],
        }

    def _connection(
        self, account: str, connection: NatsClientConnection, query: Query, now: int
    ) -> dict[str, Any]:
        options, counts = connection.options, self.traffic.of(connection.id)
        host, port = self.process.address(connection.id)
        last = connection.last_received or connection.started
        fields: dict[str, Any] = {
            "cid": connection.id,
            "kind": "Client",
            "type": self.process.kind(connection.id),
            "ip": host,
            "port": port,
            "start": format_time(connection.started),
            "last_activity": format_time(last),
            "uptime": uptime(now - connection.started),
            "idle": uptime(now - last),
            "pending_bytes": self.process.pending(connection.id),
            "in_msgs": counts.in_msgs,
            "out_msgs": counts.out_msgs,
            "in_bytes": counts.in_bytes,
            "out_bytes": counts.out_bytes,
            "subscriptions": len(connection.subscriptions),
        }
        named = {"name": options.name, "lang": options.lang, "version": options.version}
        fields |= {name: value for name, value in named.items() if value}
        if _asked(query, "auth"):
            fields |= {"authorized_user": options.user or options.nkey, "account": account}
        details = query.get("subs", "")
        subscriptions = list(connection.subscriptions.values())
        if details == "detail":
            fields["subscriptions_list_detail"] = [_subscription(account, one) for one in subscriptions]
        elif details in ("1", "true"):
            fields["subscriptions_list"] = [_text(one.subject) for one in subscriptions]
        return fields

    def subsz(self, query: Query, now: int) -> dict[str, Any]:
        found = [
            (name, one)
            for name, broker in self.brokers.items()
            for connection in broker.connections.values()
            for one in connection.subscriptions.values()
            if query.get("acc") in (None, name)
        ]
        offset, limit = _number(query, "offset", 0), _number(query, "limit", DEFAULT_LIMIT)
        fields = self.head(now) | {
            "num_subscriptions": len(found),
            "num_cache": sum(len(broker.router.routes) for broker in self.brokers.values()),
            "num_inserts": len(found),
            "num_removes": 0,
            "num_matches": 0,
            "cache_hit_rate": 0,
            "max_fanout": 0,
            "avg_fanout": 0,
            "total": len(found) if query.get("subs") else 0,
            "offset": offset,
            "limit": limit,
        }
        if query.get("subs"):
            page = found[offset : offset + limit]
            fields["subscriptions_list"] = [_subscription(name, one) for name, one in page]
        return fields

    def accountz(self, query: Query, now: int) -> dict[str, Any]:
        fields = self.head(now) | {"system_account": SYSTEM_ACCOUNT}
        name = query.get("acc")
        if not name:
            return fields | {"accounts": [SYSTEM_ACCOUNT, *self.brokers]}
        broker = self.brokers.get(name)
        if broker is None:
            return fields
        subscriptions = sum(len(one.subscriptions) for one in broker.connections.values())
        return fields | {
            "account_detail": {
                "account_name": name,
                "update_time": format_time(self.started),
                "expired": False,
                "complete": True,
                "jetstream_enabled": isinstance(broker.service, JetStream),
                "leafnode_connections": 0,
                "client_connections": len(broker.connections),
                "subscriptions": subscriptions,
            }
        }

    def accstatz(self, query: Query, now: int) -> dict[str, Any]:
        def statistics(name: str, broker: Broker) -> dict[str, Any]:
            counts = [self.traffic.of(one) for one in broker.connections]
            return {
                "acc": name,
                "conns": len(counts),
                "leafnodes": 0,
                "total_conns": len(counts),
                "num_subscriptions": sum(len(one.subscriptions) for one in broker.connections.values()),
                "sent": {"msgs": sum(c.out_msgs for c in counts), "bytes": sum(c.out_bytes for c in counts)},
                "received": {
                    "msgs": sum(c.in_msgs for c in counts),
                    "bytes": sum(c.in_bytes for c in counts),
                },
                "slow_consumers": 0,
            }

        asked = {name: broker for name, broker in self.brokers.items() if query.get("acc") in (None, name)}
        used = [statistics(name, broker) for name, broker in asked.items() if broker.connections]
        return self.head(now) | {"account_statz": used}

    def routez(self, query: Query, now: int) -> dict[str, Any]:
        return self.head(now) | {"num_routes": 0, "routes": []}

    def leafz(self, query: Query, now: int) -> dict[str, Any]:
        return self.head(now) | {"leafnodes": 0, "leafs": []}

    def gatewayz(self, query: Query, now: int) -> dict[str, Any]:
        return self.head(now) | {"outbound_gateways": {}, "inbound_gateways": {}}

    def healthz(self, query: Query) -> tuple[int, str, bytes]:
        if _asked(query, "js-enabled-only") and not self._services():
            body = b'{"status":"unavailable","status_code":503,"error":"JetStream not enabled"}'
            return 503, "application/json", body
        return 200, "application/json", b'{"status":"ok"}'


def _subscription(account: str, one: Subscription) -> dict[str, Any]:
    fields: dict[str, Any] = {"account": account, "subject": _text(one.subject)}
    if account == ACCOUNT:
        del fields["account"]
    if one.queue is not None:
        fields["qgroup"] = _text(one.queue)
    fields |= {"sid": _text(one.sid), "msgs": one.delivered, "cid": one.connection.id}
    if one.max_msgs:
        fields["max"] = one.max_msgs
    return fields


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _asked(query: Query, name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true", "t", "detail")


def _number(query: Query, name: str, default: int) -> int:
    found = read_number(query.get(name, ""))
    return default if found is None else found


def uptime(nanoseconds: int) -> str:
    """``1d2h3m4s``, without leading zeros, as nats-server prints it."""
    seconds = nanoseconds // NS
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d{hours}h{minutes}m{seconds % 60}s"
    if hours:
        return f"{hours}h{minutes}m{seconds % 60}s"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def digest(text: bytes) -> str:
    """Of a configuration file, as the log shows it."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
