"""Addresses to listen on."""

from __future__ import annotations

import re
import socket

import pytest

from plumbline.proxy.addresses import AddressError, Endpoint, listening_socket


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(AddressError, match=r"nowhere\.invalid:4222: nowhere\.invalid is not a known host"):
        Endpoint("nats", "nowhere.invalid", 4222).resolve()


def test_an_address_in_use_asks_for_another_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        expected = re.escape(f"127.0.0.1:{port} is in use: choose another address")
        with pytest.raises(AddressError, match=expected):
            listening_socket(Endpoint("nats", "127.0.0.1", port))
