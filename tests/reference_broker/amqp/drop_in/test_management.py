"""The management API of ``plumbline-rabbitmq``, as clients and test suites use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.reference_broker.amqp.drop_in.process import RabbitDropIn, ended, rabbit_drop_in

QUEUE = "/api/queues/%2F/q"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RabbitDropIn]:
    with rabbit_drop_in(folder=tmp_path) as found:
        yield found


def test_aliveness_overview_and_whoami_are_answered(server: RabbitDropIn) -> None:
    assert server.get("/api/aliveness-test/%2F") == {"status": "ok"}
    overview = server.get("/api/overview")
    assert overview["rabbitmq_version"].startswith("3.10")
    assert overview["object_totals"]["queues"] == 1  # that of the test for life
    assert server.get("/api/whoami") == {"name": "guest", "tags": ["administrator"]}
    assert server.get(f"/api/nodes/{overview['node']}")["running"] is True


def test_health_checks_know_the_ports(server: RabbitDropIn) -> None:
    for check in ("alarms", "virtual-hosts", f"port-listener/{server.port}", "protocol-listener/amqp"):
        assert server.get(f"/api/health/checks/{check}")["status"] == "ok"
    assert server.ask("GET", "/api/health/checks/port-listener/1")[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nonsense", 404),
        ("GET", "/api/queues/none", 404),
        ("GET", QUEUE, 404),
        ("POST", "/api/overview", 405),
        ("PATCH", "/api/overview", 405),
        ("GET", "/api/queues?page=9", 400),
        ("GET", "/api/queues?name=(&use_regex=true", 200),  # nothing is there to be compared
        ("DELETE", "/api/users/none", 404),
        ("GET", "/api/bindings/%2F/e/amq.topic/x/q", 404),
    ],
)
def test_what_is_not_there_is_refused(method: str, path: str, status: int, server: RabbitDropIn) -> None:
    assert server.ask(method, path)[0] == status


def test_a_body_that_is_none_is_refused(server: RabbitDropIn) -> None:
    bodies: list[Any] = [[], {"durable": 3}, {"arguments": 1}, {"arguments": {"x-max-length": "a"}}]
    for body in bodies:
        status, error = server.ask("PUT", QUEUE, body)
        assert (status, error["error"]) == (400, "bad_request"), body
    for properties in ({"priority": "x"}, {"headers": 3}, {"content_type": 4}, {"nonsense": 1}):
        fields = {"routing_key": "q", "payload": "", "properties": properties}
        assert server.ask("POST", "/api/exchanges/%2F/amq.default/publish", fields)[0] == 400, properties
    no_lists_of_names: list[Any] = [3, [{}], {"a": 1}]
    for users in no_lists_of_names:
        assert server.ask("POST", "/api/users/bulk-delete", {"users": users})[0] == 400, users


def test_a_login_is_needed_and_a_tag(server: RabbitDropIn) -> None:
    assert server.ask("GET", "/api/overview", password="no")[0] == 401
    assert server.ask("PUT", "/api/users/plain", {"password": "p", "tags": ""})[0] == 201
    assert server.ask("GET", "/api/overview", user="plain", password="p")[0] == 401
    assert server.ask("PUT", "/api/users/plain", {"password": "p", "tags": "management"})[0] == 204
    login: dict[str, Any] = {"user": "plain", "password": "p"}
    assert server.ask("GET", "/api/overview", **login)[0] == 200
    assert server.ask("GET", "/api/users", **login)[0] == 401
    assert server.ask("GET", "/api/vhosts", **login) == (200, [])
    assert server.ask("PUT", QUEUE, {}, **login)[0] == 401


def test_queues_are_declared_listed_purged_and_deleted(server: RabbitDropIn) -> None:
    fields = {"durable": True, "arguments": {"x-max-length": 2}}
    assert server.ask("PUT", QUEUE, fields)[0] == 201
    assert server.ask("PUT", QUEUE, fields)[0] == 204
    status, error = server.ask("PUT", QUEUE, {"durable": False})
    assert status == 400
    assert error["reason"].startswith("inequivalent arg 'durable'")
    with server.connect() as connection:
        channel = connection.channel()
        for body in (b"1", b"2"):
            channel.basic_publish("", "q", body)
        channel.basic_get("q")
        connection.process_data_events()
        found = server.get(QUEUE)
        assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (2, 1, 1)
        assert found["arguments"] == {"x-max-length": 2}
        tag = channel.basic_consume("q", lambda *delivery: None)
        assert server.get(QUEUE)["consumer_details"][0]["consumer_tag"] == tag
    assert server.ask("DELETE", f"{QUEUE}/contents")[0] == 204
    assert server.get("/api/queues/%2F?columns=name,messages") == [{"name": "q", "messages": 0}]
    page = server.get("/api/queues?page=1&page_size=1&name=Q")
    assert ([one["name"] for one in page["items"]], page["page_count"]) == (["q"], 1)
    assert server.ask("DELETE", QUEUE)[0] == 204
    assert server.ask("DELETE", QUEUE)[0] == 404


def test_exchanges_and_bindings(server: RabbitDropIn) -> None:
    assert server.ask("PUT", "/api/exchanges/%2F/x", {"type": "topic", "auto_delete": False})[0] == 201
    assert server.ask("PUT", "/api/exchanges/%2F/y", {"type": "nonsense"})[0] == 400
    server.ask("PUT", QUEUE, {})
    path = "/api/bindings/%2F/e/x/q/q"
    assert server.ask("POST", path, {"routing_key": "a/#"})[0] == 201
    assert server.ask("POST", path, {"arguments": {"b": 1}})[0] == 201
    assert server.ask("POST", "/api/bindings/%2F/e/x/e/amq.fanout", {})[0] == 201
    found = server.get(path)
    assert [one["routing_key"] for one in found] == ["a/#", ""]
    assert server.get("/api/exchanges/%2F/x/bindings/source")[2]["destination"] == "amq.fanout"
    assert len(server.get("/api/exchanges/%2F/amq.fanout/bindings/destination")) == 1
    assert [one["source"] for one in server.get(f"{QUEUE}/bindings")] == ["", "x", "x"]
    for one in found:
        assert server.get(f"{path}/{one['properties_key']}") == one
        assert server.ask("DELETE", f"{path}/{one['properties_key']}")[0] == 204
    assert server.get(path) == []
    assert server.ask("DELETE", "/api/exchanges/%2F/x")[0] == 204
    assert server.ask("DELETE", "/api/exchanges/%2F/amq.topic")[0] == 401


def test_messages_are_published_and_taken(server: RabbitDropIn) -> None:
    server.ask("PUT", QUEUE, {})
    publish = "/api/exchanges/%2F/amq.default/publish"
    fields = {
        "routing_key": "q",
        "payload": "aGk=",
        "payload_encoding": "base64",
        "properties": {"priority": 3},
    }
    assert server.ask("POST", publish, fields) == (200, {"routed": True})
    unroutable = {"routing_key": "none", "payload": "", "payload_encoding": "string", "properties": {}}
    assert server.ask("POST", publish, unroutable) == (200, {"routed": False})
    get = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    (message,) = server.ask("POST", f"{QUEUE}/get", get)[1]
    assert (message["payload"], message["properties"], message["redelivered"]) == (
        "hi",
        {"priority": 3},
        False,
    )
    (again,) = server.ask("POST", f"{QUEUE}/get", {**get, "ackmode": "ack_requeue_false"})[1]
    assert again["redelivered"] is True
    assert server.ask("POST", f"{QUEUE}/get", get) == (200, [])


def test_users_vhosts_and_permissions_can_be_used_at_once(server: RabbitDropIn) -> None:
    assert server.ask("PUT", "/api/vhosts/orders")[0] == 201
    assert server.ask("PUT", "/api/users/shop", {"password": "p", "tags": ""})[0] == 201
    path = "/api/permissions/orders/shop"
    assert server.ask("PUT", path, {"configure": ".*", "write": ".*", "read": ".*"})[0] == 201
    assert server.ask("PUT", path, {"configure": "(", "write": "", "read": ""})[0] == 400
    with server.connect("shop", "p", "orders") as connection:
        connection.channel().queue_declare("q")
        assert server.ask("PUT", path, {"configure": "^$", "write": "", "read": ".*"})[0] == 204
        with pytest.raises(ChannelClosedByBroker, match="refused for user 'shop'"):
            connection.channel().queue_declare("r")
        assert server.get("/api/users/shop/permissions")[0]["vhost"] == "orders"
        assert server.ask("DELETE", "/api/vhosts/orders")[0] == 204
        with pytest.raises(ConnectionClosedByBroker, match="vhost 'orders' is deleted"):
            connection.channel()
    assert server.get("/api/users/shop/permissions") == []
    assert server.ask("DELETE", "/api/users/shop")[0] == 204
    assert [one["name"] for one in server.get("/api/users")] == ["guest"]


def test_a_connection_is_shown_and_closed(server: RabbitDropIn) -> None:
    with server.connect() as connection:
        channel = connection.channel()
        (shown,) = server.get("/api/connections")
        assert (shown["user"], shown["vhost"], shown["channels"]) == ("guest", "/", 1)
        path = f"/api/connections/{shown['name'].replace(' ', '%20').replace('>', '%3E')}"
        assert server.get(f"{path}/channels")[0]["number"] == channel.channel_number
        assert server.ask("DELETE", path, headers={"X-Reason": "enough"})[0] == 204
        with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED - enough"):
            connection.process_data_events(10)
    assert server.get("/api/connections") == []


def test_definitions_are_exported_and_start_another_server(server: RabbitDropIn, tmp_path: Path) -> None:
    server.ask("PUT", "/api/users/shop", {"password": "p", "tags": "management"})
    server.ask("PUT", "/api/vhosts/orders")
    server.ask("PUT", "/api/permissions/orders/shop", {"configure": "", "write": ".*", "read": ".*"})
    server.ask("PUT", "/api/permissions/orders/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    server.ask("PUT", "/api/exchanges/orders/x", {"type": "headers"})
    server.ask("PUT", "/api/queues/orders/q", {"arguments": {"x-message-ttl": 60000}})
    server.ask("PUT", "/api/queues/orders/gone", {"durable": False})
    server.ask("POST", "/api/bindings/orders/e/x/q/q", {"routing_key": "k", "arguments": {"x-match": "any"}})
    definitions = server.get("/api/definitions")
    assert [one["name"] for one in definitions["queues"]] == ["q"]
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(definitions))
    folder = tmp_path / "other"
    folder.mkdir()
    with rabbit_drop_in(f"load_definitions = {file}\n", folder=folder) as other:
        assert other.get("/api/definitions") == definitions
        with other.connect("shop", "p", "orders") as connection:
            connection.channel().basic_publish("", "q", b"1")
        assert other.ask("POST", "/api/definitions", definitions)[0] == 204
    assert server.ask("POST", "/api/definitions", {"queues": [{"name": "a", "vhost": "none"}]})[0] == 400


def test_topic_permissions_of_definitions_hold(server: RabbitDropIn) -> None:
    usual = {"user": "guest", "vhost": "/", "exchange": "amq.topic"}
    keys = {**usual, "write": "^written", "read": "^seen"}
    assert server.ask("POST", "/api/definitions", {"topic_permissions": [keys]})[0] == 204
    assert server.get("/api/definitions")["topic_permissions"] == [keys]
    with server.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "written.a", b"")
        with pytest.raises(ChannelClosedByBroker, match="access to topic 'other"):
            channel.basic_publish("amq.topic", "other.a", b"")
    wrong = {"topic_permissions": [{**keys, "read": "("}]}
    assert server.ask("POST", "/api/definitions", wrong)[0] == 400


def test_definitions_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[1]")
    file = tmp_path / "a.conf"
    file.write_text(f"load_definitions = {tmp_path}/bad.json\n")
    result = ended("-c", str(file), "-p", "-1")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "bad.json: it is no JSON object" in result.stderr


def test_a_large_body_is_refused(server: RabbitDropIn) -> None:
    assert server.ask("GET", "/api/overview", headers={"Content-Length": "9000000000"})[0] == 413
