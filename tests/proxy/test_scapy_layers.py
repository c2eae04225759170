"""scapy reads our captures with our layers, and is a second witness of our packets."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

from scapy.layers.inet import IP, TCP
from scapy.packet import bind_layers
from scapy.sendrecv import sniff
from scapy.sessions import TCPSession
from scapy.utils import rdpcap

from plumbline.proxy.record import recorded
from plumbline.proxy.scapy_layers import AMQP, NATS, AMQPFrame
from plumbline.wire.amqp import PROTOCOL_HEADER, Heartbeat, Method
from plumbline.wire.nats import Ping, Pub
from tests.proxy.peers import connect, echo, receive, server

OPERATIONS = [Pub.make("a.b", b"\r\nPUB x 1\r\n" * 100), Ping.make(), *(Pub.make("c") for _ in range(2000))]


def exchange(place: Path, data: bytes, scheme: str) -> int:
    """Sends it in random segments to a server that echoes; returns the server's port."""
    random = Random(7)
    with (
        server(echo) as url,
        recorded(url.replace("tcp", scheme), place) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = 0
        while at < len(data):
            step = random.choice((1, 100, 3000))
            client.sendall(data[at : at + step])
            receive(client, len(data[at : at + step]))
            at += step
    return int(url.rpartition(":")[2])


def test_operations_of_a_recording_are_whole_and_exact(tmp_path: Path) -> None:
    sent = b"".join(operation.raw for operation in OPERATIONS)
    port = exchange(tmp_path, sent, "nats")
    bind_layers(TCP, NATS, dport=port)
    (file,) = map(str, tmp_path.iterdir())
    packets = [packet for packet in sniff(offline=file, session=TCPSession, quiet=True) if NATS in packet]
    found = [operation for packet in packets for operation in packet[NATS].operations]
    assert [operation.raw_bytes for operation in found] == [operation.raw for operation in OPERATIONS]
    assert [operation.verb for operation in found[:3]] == ["PUB", "PING", "PUB"]
    assert found[1].mysummary() == "PING"


def test_the_packets_carry_the_stream_and_are_numbered_by_its_bytes(tmp_path: Path) -> None:
    sent = b"".join(operation.raw for operation in OPERATIONS)
    port = exchange(tmp_path, sent, "nats")
    (file,) = map(str, tmp_path.iterdir())
    packets = [packet for packet in rdpcap(file) if packet[TCP].dport == port]
    first = packets[0][TCP].seq
    stream = b""
    for packet in packets[1:]:
        assert packet[TCP].seq == (first + 1 + len(stream)) % 2**32
        stream += bytes(packet[TCP].payload)
        whole = IP(bytes(packet))
        checksum, whole.chksum = whole.chksum, None
        assert IP(bytes(whole)).chksum == checksum
    assert stream == sent


def test_frames_of_amqp(tmp_path: Path) -> None:
    publish = Method.make("basic.publish", 1, routing_key="q", properties={}, body=b"x" * 5000)
    sent = PROTOCOL_HEADER + publish.raw + Heartbeat.make().raw
    port = exchange(tmp_path, sent, "amqp")
    bind_layers(TCP, AMQP, dport=port)
    (file,) = map(str, tmp_path.iterdir())
    packets = [packet for packet in sniff(offline=file, session=TCPSession, quiet=True) if AMQP in packet]
    assert b"".join(bytes(packet[AMQP]) for packet in packets) == sent
    frames = [frame for packet in packets for frame in packet[AMQP].frames]
    assert [frame.mysummary() for frame in frames] == [
        "[1] basic.publish",
        "[1] header",
        "[1] body",
        "[0] heartbeat",
    ]


def test_layers_build_the_bytes_of_their_fields() -> None:
    built = bytes(AMQP(frames=[AMQPFrame(type=8), AMQPFrame(type=3, channel=2, content=b"abc")]))
    assert built == Heartbeat.make().raw + b"\x03\x00\x02\x00\x00\x00\x03abc\xce"
