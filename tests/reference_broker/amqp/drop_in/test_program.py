"""``plumbline-rabbitmq`` as test suites start it: environment, settings, log lines, exit codes, logins."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from plumbline.reference_broker.amqp.drop_in.shell.log import write
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.amqp.drop_in.process import ended, rabbit_drop_in

ACCESS_REFUSED = 403
LIMITED = """
# one user, who may not do everything
default_user = shop
default_pass = 's3cret#1'   # with a comment
default_vhost = orders
default_permissions.configure = ^own-
default_permissions.write = ^(own-.*|amq\\.default)$
default_permissions.read = ^own-
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with rabbit_drop_in(folder=tmp_path) as server, server.connect() as connection:
        server.process.send_signal(number)
        assert server.process.wait(HANGS_AFTER_S) == 0
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.process_data_events(10)
        assert closed.value.reply_code == 320


def test_permissions_are_patterns_for_names(tmp_path: Path) -> None:
    refused: dict[str, Callable[[Any], Any]] = {
        "queue 'other'": lambda channel: channel.queue_declare("other"),
        "exchange 'other'": lambda channel: channel.exchange_declare("other"),
        "exchange 'amq.topic'": lambda channel: channel.queue_bind("own-queue", "amq.topic", "a"),
        "queue 'foreign'": lambda channel: channel.basic_get("foreign"),
        "exchange 'dead'": lambda channel: channel.exchange_delete("dead"),
    }
    with (
        rabbit_drop_in(LIMITED, folder=tmp_path) as server,
        server.connect("shop", "s3cret#1", "orders") as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("own-queue")
        channel.basic_publish("", "own-queue", b"1")
        assert channel.basic_get("own-queue")[2] == b"1"
        for what, use in refused.items():
            with pytest.raises(ChannelClosedByBroker) as closed:
                use(connection.channel())
            assert closed.value.reply_code == ACCESS_REFUSED
            assert closed.value.reply_text == (
                f"ACCESS_REFUSED - access to {what} in vhost 'orders' refused for user 'shop'"
            )


def test_what_nobody_may_do_is_refused_before_permissions_are_asked(tmp_path: Path) -> None:
    default = "operation not permitted on the default exchange"
    refused: dict[Callable[[Any], Any], str] = {
        lambda channel: channel.queue_bind("own-queue", "", "a"): default,
        lambda channel: channel.queue_unbind("own-queue", "", "a"): default,
        lambda channel: channel.queue_bind("other", "", "a"): "access to queue 'other'",
        lambda channel: channel.exchange_bind("own-x", "", "a"): default,
        lambda channel: channel.exchange_bind("", "own-x", "a"): "access to exchange 'amq.default'",
        lambda channel: channel.exchange_delete("amq.topic"): "deletion of system exchange 'amq.topic'",
        lambda channel: channel.exchange_delete(""): default,
    }
    limits = LIMITED.replace("|amq\\.default", "")
    with (
        rabbit_drop_in(limits, folder=tmp_path) as server,
        server.connect("shop", "s3cret#1", "orders") as connection,
    ):
        connection.channel().queue_declare("own-queue")
        for use, text in refused.items():
            with pytest.raises(ChannelClosedByBroker) as closed:
                use(connection.channel())
            assert closed.value.reply_code == ACCESS_REFUSED
            assert closed.value.reply_text.startswith(f"ACCESS_REFUSED - {text}")


def test_an_empty_pattern_is_for_nothing(tmp_path: Path) -> None:
    text = "default_permissions.write =\n"
    with rabbit_drop_in(text, folder=tmp_path) as server, server.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        with pytest.raises(ChannelClosedByBroker, match=r"amq\.default"):
            channel.basic_publish("", "q", b"1")


def test_it_calls_itself_rabbitmq(tmp_path: Path) -> None:
    with rabbit_drop_in(folder=tmp_path) as server, server.connect() as connection:
        assert connection._impl.server_properties["product"] == "RabbitMQ"


def test_quorum_queues_count_deliveries_and_limit_them(tmp_path: Path) -> None:
    quorum = {"x-queue-type": "quorum"}
    with rabbit_drop_in(folder=tmp_path) as server, server.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("dead")
        limited = {**quorum, "x-delivery-limit": 1, "x-dead-letter-exchange": ""}
        channel.queue_declare("q", durable=True, arguments={**limited, "x-dead-letter-routing-key": "dead"})
        assert server.get("/api/queues/%2F/q")["type"] == "quorum"
        channel.basic_publish("", "q", b"m", pika.BasicProperties(headers={"x-delivery-count": "none"}))
        for headers in ({"x-delivery-count": "none"}, {"x-delivery-count": 1}):
            method, properties, _ = channel.basic_get("q")
            assert properties.headers == headers
            channel.basic_reject(method.delivery_tag)
        _, properties, _ = channel.basic_get("dead")
        assert [death["reason"] for death in properties.headers["x-death"]] == ["delivery_limit"]
        refused: dict[str, dict[str, Any]] = {
            "invalid property 'non-durable'": {"queue": "r"},
            "invalid property 'auto-delete'": {"queue": "r", "auto_delete": True, "durable": True},
            "invalid property 'exclusive-owner'": {"queue": "r", "exclusive": True, "durable": True},
            "Cannot declare a server-named queue": {"queue": "", "durable": True},
        }
        for text, fields in refused.items():
            with pytest.raises(ChannelClosedByBroker, match=text):
                connection.channel().queue_declare(**fields, arguments=quorum)
        channel.basic_qos(prefetch_count=1, global_qos=True)
        with pytest.raises(ConnectionClosedByBroker, match="does not support global qos"):
            channel.basic_consume("q", lambda *delivery: None)


def test_logins_need_the_password_and_a_virtual_host(tmp_path: Path) -> None:
    with rabbit_drop_in(LIMITED, folder=tmp_path) as server:
        with pytest.raises(ProbableAuthenticationError), server.connect("shop", "wrong", "orders"):
            pass
        refused = (ProbableAccessDeniedError, ConnectionClosedByBroker)
        with pytest.raises(refused, match="vhost / not found"), server.connect("shop", "s3cret#1", "/"):
            pass


def test_the_environment_comes_before_the_file_and_flags_before_both(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "a.conf"
    file.write_text("listeners.tcp.default = 1\nheartbeat = 7\n")
    for flags, environment in (
        ((), {"RABBITMQ_NODE_PORT": str(port), "RABBITMQ_CONFIG_FILE": str(file.with_suffix(""))}),
        (("--port", str(port), "--config", str(file)), {"RABBITMQ_NODE_PORT": "2"}),
    ):
        with rabbit_drop_in("", *flags, folder=tmp_path, **environment) as server:
            assert server.port == port
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
            assert connection._impl.params.heartbeat == 7
            connection.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listeners.tcp.default = x", "a.conf:1: listeners.tcp.default is a number, not 'x'"),
        ("heartbaet = 1", "a.conf:1: this server has no setting 'heartbaet'"),
        ("\ndefault_pass s3cr3tPW", "a.conf:2: write 'key = value' where 'default_pass' is"),
        ("default_pass = $(NO_SUCH_ONE)", "a.conf:1: there is no variable NO_SUCH_ONE in the environment"),
        ("default_permissions.read = (", "'(' is no regular expression"),
        ("listeners.ssl.default = 5671", "listeners.ssl needs ssl_options.certfile and ssl_options.keyfile"),
        ("auth_backends.1 = ldap", "auth_backends: this server has no backend 'ldap'"),
    ],
)
def test_a_wrong_configuration_ends_it_with_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text(text)
    result = ended("-c", str(file), "-p", "-1")
    assert result.returncode == 1
    assert result.stderr.startswith(f"plumbline-rabbitmq: {sentence}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--nonsense"], "there is no option --nonsense"),
        (["--level", "4.0"], "this broker behaves like RabbitMQ 3.10 only"),
        (["--defect", "no-such-one"], "no-such-one"),
        (["-c", "no-such-file"], "no-such-file: cannot be read"),
    ],
)
def test_a_wrong_command_line_ends_it(flags: list[str], words: str) -> None:
    result = ended(*flags)
    assert (result.returncode, words in result.stderr) == (1, True), result.stderr


def test_a_port_that_is_taken_ends_it() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        result = ended("--port", str(port))
    assert result.returncode == 1
    assert f"cannot listen on 0.0.0.0:{port}" in result.stderr


def test_a_defect_breaks_one_rule(tmp_path: Path) -> None:
    with (
        rabbit_drop_in("", "--defect", "any-password-is-right", folder=tmp_path) as server,
        server.connect("guest", "wrong") as connection,
    ):
        assert connection.is_open


def test_text_of_others_makes_no_line_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    write("warning", "a client\n2026-11-23 [info] \x1b[31mred", " * second")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("[warning] <0.9.0> a client\\n2026-11-23 [info] \\x1b[31mred")
    assert second == " * second"
