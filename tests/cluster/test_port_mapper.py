"""A node learns where others are from a port mapper of its own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from plumbline.cluster.amqp.port_mapper import PortMapper
from tests.patience import HANGS_AFTER_S


@pytest.fixture
def mapper() -> Iterator[PortMapper]:
    found = PortMapper({"other": 1234})
    yield found
    found.stop()


def ask(mapper: PortMapper, request: bytes) -> socket.socket:
    """The connection on which the answer comes."""
    connection = socket.create_connection(("127.0.0.1", mapper.port), timeout=HANGS_AFTER_S)
    connection.sendall(len(request).to_bytes(2) + request)
    return connection


def port_of(mapper: PortMapper, name: str) -> int | None:
    with ask(mapper, b"z" + name.encode()) as connection, connection.makefile("rb") as answer:
        kind, result = answer.read(2)
        assert kind == 119
        return int.from_bytes(answer.read(2)) if result == 0 else None


def test_it_names_the_relay_of_another_node(mapper: PortMapper) -> None:
    assert port_of(mapper, "other") == 1234
    assert port_of(mapper, "unknown") is None


def test_a_node_is_registered_as_long_as_its_connection(mapper: PortMapper) -> None:
    request = b"x" + struct.pack(">HBBHHH", 4321, 77, 0, 6, 5, 3) + b"own" + bytes(2)
    with ask(mapper, request) as connection:
        kind, result, creation = struct.unpack(">BBI", connection.recv(6, socket.MSG_WAITALL))
        assert (kind, result) == (118, 0)
        assert port_of(mapper, "own") == 4321
        with ask(mapper, request) as later:  # started again; the earlier connection ends after that
            assert struct.unpack(">BBI", later.recv(6, socket.MSG_WAITALL))[2] > creation
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
            assert port_of(mapper, "own") == 4321


def test_another_name_does_not_keep_that_of_an_ended_node(mapper: PortMapper) -> None:
    def register(name: bytes) -> socket.socket:
        found = ask(mapper, b"x" + struct.pack(">HBBHHH", 4321, 77, 0, 6, 5, len(name)) + name + bytes(2))
        assert found.recv(6, socket.MSG_WAITALL)[:2] == bytes([118, 0])
        return found

    with register(b"own") as node, register(b"check") as check:
        for one in (check, node):
            one.shutdown(socket.SHUT_WR)
            assert one.recv(1) == b""
    assert port_of(mapper, "own") is None


def test_it_lists_names(mapper: PortMapper) -> None:
    with ask(mapper, b"n") as connection, connection.makefile("rb") as answer:
        assert int.from_bytes(answer.read(4)) == mapper.port
        assert answer.read() == b"name other at port 1234\n"
