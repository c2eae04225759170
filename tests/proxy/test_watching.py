"""The watching proxy keeps the operations of both sides, and applies the faults that it is given."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plumbline.proxy.faults.language import FaultError
from plumbline.proxy.tls.certificates import generated
from plumbline.proxy.watching import REFUSED, WatchedProxy, watched
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.tls import server_context
from plumbline.wire.nats import Info, Msg, Ping, Pong
from plumbline.wire.sender import Sender
from tests.patience import HANGS_AFTER_S


@contextmanager
def client(proxy: WatchedProxy) -> Iterator[socket.socket]:
    host, port = proxy.url.partition("://")[2].split(":")
    with socket.create_connection((host, int(port)), HANGS_AFTER_S) as link:
        yield link


@pytest.fixture
def broker() -> Iterator[str]:
    with NatsBroker.in_thread() as url:
        yield url


def has(proxy: WatchedProxy, kind: type[object], number: int = 1) -> bool:
    return sum(isinstance(seen.operation, kind) for seen in list(proxy.observations)) >= number


def test_operations_of_both_sides_are_kept_in_their_order(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as link:
        link.sendall(b"CONNECT {}\r\nPING\r\n")
        assert proxy.wait_until(lambda: has(proxy, Pong), HANGS_AFTER_S)
        seen = [(one.sender, type(one.operation).__name__) for one in proxy.observations]
        assert [name for _, name in seen if name not in ("Info", "Ok")] == ["Connect", "Ping", "Pong"]
        assert seen[-1] == (Sender.SERVER, "Pong")
        assert [one.index for one in proxy.observations] == list(range(1, len(seen) + 1))
        assert proxy.broker == broker


def test_clients_with_tls_are_watched_inside_it(broker: str, tmp_path: Path) -> None:
    certificate = generated(tmp_path, ())
    trusted = server_context(certificate[1], trusts_anyone=False)
    with watched(broker, certificate=certificate) as proxy:
        assert proxy.url.startswith("tls://127.0.0.1:")
        assert proxy.authority == certificate[1]
        with client(proxy) as link:
            assert b'"tls_required":true' in link.recv(65536)
            with trusted.wrap_socket(link, server_hostname="127.0.0.1") as encrypted:
                encrypted.sendall(b"CONNECT {}\r\nPING\r\n")
                assert proxy.wait_until(lambda: has(proxy, Pong), HANGS_AFTER_S)
        kinds = [type(one.operation).__name__ for one in proxy.observations]
        assert [kind for kind in kinds if kind != "Ok"] == ["Info", "Connect", "Ping", "Pong"]
        assert b'"tls_required":true' in proxy.observations[0].operation.raw


def test_a_client_in_the_clear_gets_no_further_than_info(broker: str, tmp_path: Path) -> None:
    with watched(broker, certificate=generated(tmp_path, ())) as proxy, client(proxy) as link:
        assert link.recv(65536).startswith(b"INFO ")
        link.sendall(b"CONNECT {}\r\nPING\r\n")
        with contextlib.suppress(ConnectionResetError):
            while link.recv(65536):  # a TLS alert, and the end
                pass
        assert proxy.wait_until(
            lambda: any("no connection: TLS" in one.text for one in proxy.remarks), HANGS_AFTER_S
        )
        assert proxy.observations == []


def test_a_reset_also_ends_a_connection_in_the_handshake(broker: str, tmp_path: Path) -> None:
    with watched(broker, certificate=generated(tmp_path, ())) as proxy, client(proxy) as link:
        link.recv(65536)
        proxy.reset_connections()
        assert link.recv(65536) == b""


def test_injected_bytes_reach_client_and_are_observed(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as link:
        proxy.wait_until(lambda: has(proxy, Info), HANGS_AFTER_S)
        proxy.inject(b"MSG a 1 2\r\nhi\r\n")
        received = b""
        while b"hi" not in received:
            received += link.recv(4096)
        assert has(proxy, Msg)


def test_dropped_operation_is_not_observed(broker: str) -> None:
    with watched(broker, ["drop PONG on downstream"]) as proxy, client(proxy) as link:
        link.sendall(b"CONNECT {}\r\nPING\r\n")
        assert proxy.wait_until(lambda: any("drop PONG" in one.text for one in proxy.remarks), HANGS_AFTER_S)
        assert not has(proxy, Pong)
        proxy.set_faults()
        link.sendall(b"PING\r\n")
        assert proxy.wait_until(lambda: has(proxy, Pong), HANGS_AFTER_S)
        assert has(proxy, Ping, 2)


def test_a_cut_resets_the_client(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as link:
        proxy.wait_until(lambda: has(proxy, Info), HANGS_AFTER_S)
        link.recv(4096)
        proxy.reset_connections()
        with pytest.raises(ConnectionResetError):
            link.recv(4096)
        assert proxy.wait_until(lambda: any("cut" in one.text for one in proxy.remarks), HANGS_AFTER_S)


def test_undecodable_bytes_become_remark(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as link:
        link.sendall(b"HELLO?\r\n")
        assert proxy.wait_until(
            lambda: any("malformed protocol data" in one.text for one in proxy.remarks), HANGS_AFTER_S
        )


def test_credentials_and_path_of_the_url_are_kept() -> None:
    proxy = WatchedProxy("amqp://guest:secret@127.0.0.1:5672/%2f")
    with proxy.running():
        assert proxy.url.startswith("amqp://guest:secret@127.0.0.1:")
        assert proxy.url.endswith("/%2f")


def test_a_fault_that_cannot_be_read_is_refused(broker: str) -> None:
    with pytest.raises(FaultError):
        WatchedProxy(broker, ["explode"])


def connected(proxy: WatchedProxy, link: socket.socket) -> None:
    """CONNECT, and PONG to a PING."""
    before = sum(isinstance(seen.operation, Pong) for seen in list(proxy.observations))
    link.sendall(b"CONNECT {}\r\nPING\r\n")
    assert proxy.wait_until(lambda: has(proxy, Pong, before + 1), HANGS_AFTER_S)


def read_to_end(link: socket.socket) -> bytes:
    link.settimeout(HANGS_AFTER_S)
    found = b""
    while data := link.recv(65536):
        found += data
    return found


def test_connections_can_be_closed(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as link:
        connected(proxy, link)
        proxy.close_connections()
        assert read_to_end(link).startswith(b"INFO ")


def test_new_clients_can_be_refused_while_open_connections_stay(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as stays:
        connected(proxy, stays)
        proxy.refuse_connections()
        with client(proxy) as refused:
            assert read_to_end(refused) == b""
        assert proxy.wait_until(lambda: proxy.remarks[-1].connection == REFUSED, HANGS_AFTER_S)
        proxy.accept_connections()
        with client(proxy) as again:
            connected(proxy, again)
        connected(proxy, stays)


def test_a_silent_connection_stays_open_and_the_next_one_is_whole(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as silent:
        connected(proxy, silent)
        proxy.silence_connections()
        silent.sendall(b"PING\r\n")
        assert proxy.wait_until(lambda: has(proxy, Ping, 2), HANGS_AFTER_S)
        with client(proxy) as whole:
            connected(proxy, whole)
        answered = [seen.connection for seen in proxy.observations if isinstance(seen.operation, Pong)]
        assert answered == ["1", "2"]


def test_a_silent_connection_does_not_show_that_the_server_ended_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        watched(f"nats://127.0.0.1:{listener.getsockname()[1]}") as proxy,
        client(proxy) as silent,
    ):
        served, _ = listener.accept()
        with served:
            served.sendall(b'INFO {"server_id":"S"}\r\n')
            assert proxy.wait_until(lambda: has(proxy, Info), HANGS_AFTER_S)
            assert silent.recv(65536).startswith(b"INFO")
            proxy.silence_connections()
        silent.settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent.recv(1)
        silent.close()
        ends = ["closed by the client", "closed by the server"]
        assert proxy.wait_until(lambda: [one.text for one in proxy.remarks][1:] == ends, HANGS_AFTER_S)


def test_connections_to_another_address_have_names_of_their_own(broker: str) -> None:
    with watched(broker) as proxy, client(proxy) as first:
        connected(proxy, first)
        host, port = proxy.add_address().removeprefix("nats://").split(":")
        with socket.create_connection((host, int(port)), HANGS_AFTER_S) as second:
            connected(proxy, second)
            proxy.inject(b"PING\r\n")
            second.settimeout(HANGS_AFTER_S)
            found = second.recv(65536)
            while b"PING" not in found:
                found += second.recv(65536)
        assert list(dict.fromkeys(seen.connection for seen in proxy.observations)) == ["1", "b1"]
