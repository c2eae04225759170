"""Rewrites a server's INFO for clients: its address, and whether TLS is required.

Source: docs.nats.io, "Client Protocol", INFO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.proxy.addresses import Endpoint
from plumbline.wire.nats import Decoder, Info, Sender

PLACES = ("host", "port", "connect_urls", "ws_connect_urls")
TLS_FIELDS = ("tls_required", "tls_available", "tls_verify")


def client_changes(info: bytes, *, encrypted: bool) -> dict[str, Any]:
    """What has to change for a client that is to use TLS, or not to; None takes a field away."""
    if encrypted == bool(_fields(info).get("tls_required")):
        return {}
    return tls_changes(encrypted=encrypted)


def tls_changes(*, encrypted: bool) -> dict[str, Any]:
    """That TLS is wanted, and nothing else of it; or nothing."""
    return dict.fromkeys(TLS_FIELDS) | ({"tls_required": True} if encrypted else {})


def address_changes(proxy: Endpoint) -> dict[str, Any]:
    """What sends clients to the proxy, and nowhere else."""
    return {"host": proxy.host, "port": proxy.port, "connect_urls": [str(proxy)], "ws_connect_urls": None}


def rewrite_info(info: bytes, changes: Mapping[str, Any]) -> bytes:
    """INFO with these fields; the same bytes if that changes nothing.

    Of places, what it does not tell stays untold.
    """
    fields = _fields(info)
    changed = {name: value for name, value in changes.items() if name in fields or name not in PLACES}
    now = {name: value for name, value in {**fields, **changed}.items() if value is not None}
    return info if now == fields else Info.make(now).raw


def _fields(info: bytes) -> dict[str, Any]:
    (operation,) = Decoder(Sender.SERVER).feed(info)
    assert isinstance(operation, Info)
    return operation.fields
