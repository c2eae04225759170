"""TLS ended and begun by the proxy, so that what it records can be read: certificates and trust.

``tls_opening`` describes how a connection comes to be encrypted.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from plumbline.proxy.addresses import Endpoint
from plumbline.tls import TlsError, TlsOptions, context_of


class ProxySide(StrEnum):
    """Of the proxy."""

    CLIENT = "client"
    SERVER = "server"


class TlsSettings(Struct, frozen=True):
    """Which side is encrypted, and how. None: in the clear."""

    client: ssl.SSLContext | None = None
    server: ssl.SSLContext | None = None
    server_name: str = ""
    after_info: bool = False  # as NATS does
    first: frozenset[ProxySide] = frozenset()  # sides whose handshake comes before INFO all the same


def client_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What the proxy shows to clients. Raises ``TlsError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{certificate}: no certificate and key: {error}") from None
    return context


def settings_before(server: Endpoint, options: TlsOptions) -> TlsSettings | None:
    """Of a proxy in the clear before ``server``; None if that is not encrypted. Raises ``TlsError``."""
    if not server.encrypted:
        if options.flags:
            raise TlsError(f"{options.flags[0].partition('=')[0]} needs a URL with tls:// or amqps://")
        return None
    return TlsSettings(
        server=context_of(options),
        server_name=options.name or server.host,
        after_info=server.protocol == "nats",
    )


def tls_settings(
    server: Endpoint,
    client: ssl.SSLContext | None,
    options: TlsOptions,
    *,
    first: Iterable[ProxySide] = (),
) -> TlsSettings | None:
    """What these settings ask for; None if nothing is encrypted. Raises ``TlsError``."""
    if client is None and not server.encrypted:
        if first:
            raise TlsError("--tls-first needs TLS on at least one side")
        return None
    return TlsSettings(
        client=client,
        server=context_of(options) if server.encrypted else None,
        server_name=options.name or server.host,
        after_info=server.protocol == "nats",
        first=frozenset(first),
    )
