"""The time of a probe, on a virtual clock: a peer that never stops sending cannot keep it."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterable, Iterator
from typing import cast

import pytest

from plumbline.conformance.nats import probe
from plumbline.conformance.targets.links import open_link
from plumbline.conformance.targets.urls import NatsUrl
from plumbline.errors import TargetUnreachable
from plumbline.reference_broker.nats.server import NatsBroker

INFO = b'INFO {"server_id":"X","version":"2.15.0","headers":true}\r\n'


class SlowLink:
    """A connection whose peer sends one piece every ``every_s`` seconds of a clock of its own."""

    def __init__(self, pieces: Iterable[bytes], every_s: float) -> None:
        self.now = 0.0
        self._pieces: Iterator[bytes] = iter(pieces)
        self._every_s = every_s
        self._next_at = every_s
        self._timeout = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def sendall(self, data: bytes) -> None:
        assert data

    def recv(self, size: int) -> bytes:
        if self._next_at > self.now + self._timeout:
            self.now += self._timeout
            raise TimeoutError
        self.now = max(self.now, self._next_at)
        self._next_at += self._every_s
        return next(self._pieces)[:size]


def every_byte(data: bytes) -> Iterator[bytes]:
    return (bytes([octet]) for octet in itertools.cycle(data))


@pytest.mark.parametrize("every_s", [0.001, 0.1, 0.9, 2.0])
@pytest.mark.parametrize(
    "pieces",
    [
        lambda: every_byte(b"INFO {"),
        lambda: itertools.chain([INFO], itertools.repeat(b"PING\r\n")),
        lambda: itertools.chain([INFO], every_byte(b"PING\r\n")),
        lambda: itertools.chain([INFO], itertools.cycle([b"PONG\r\n", b"PING\r\n"])),
    ],
    ids=["endless INFO", "PING for ever", "PING byte by byte", "PONG in between"],
)
def test_a_probe_ends_within_its_time(
    pieces: object, every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(pieces)
    link = SlowLink(pieces(), every_s)
    monkeypatch.setattr(probe, "time", link)
    monkeypatch.setattr(probe, "open_link", lambda url: contextlib.nullcontext(link))
    with contextlib.suppress(TargetUnreachable):
        probe.probe(cast(socket.socket, link), NatsUrl.parse("nats://127.0.0.1:4222"), 10**6, 0.01)
    assert link.now <= probe.PROBE_S


def test_a_server_that_greets_late_is_greeted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """To tell it from an HTTP server it was sent an empty line, which is an error to it."""
    monkeypatch.setattr(probe, "SPEAK_FIRST_S", 0.0)
    with NatsBroker.in_thread() as url:
        target = NatsUrl.parse(url)
        with open_link(target) as link:
            info, round_trips = probe.probe(link, target, 2, 0.0)
    assert info["server_id"]
    assert len(round_trips) == 2
