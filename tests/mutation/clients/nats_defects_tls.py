"""Faults of encrypted connections: CLIENT-TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from plumbline.wire.nats import Info
from tests.mutation.clients.defect import of_connection, replace
from tests.mutation.clients.nats_client import Client, Link
from tests.mutation.clients.nats_jetstream import JetStream

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL


def _securing(whether: Callable[[Client, Info], bool]) -> Callable[[Client, JetStream], None]:
    """TLS is begun only if this is true as well."""

    def set_up(client: Client, js: JetStream) -> None:
        whole = client.secure

        def secure(plain: socket.socket, info: Info, host: str) -> Link:
            return whole(plain, info, host) if whether(client, info) else plain

        replace(client, "secure", secure)

    return set_up


def _verifying(
    alter: Callable[[ssl.SSLContext], None], when: Callable[[Client], bool] = lambda client: True
) -> Callable[[Client, JetStream], None]:
    """The settings of TLS, altered if that is true."""

    def set_up(client: Client, js: JetStream) -> None:
        whole = client.tls_context

        def tls_context() -> ssl.SSLContext:
            context = whole()
            if when(client):
                alter(context)
            return context

        replace(client, "tls_context", tls_context)

    return set_up


def _verify_nothing(context: ssl.SSLContext) -> None:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


def _verify_no_name(context: ssl.SSLContext) -> None:
    context.check_hostname = False


def _verify_no_time(context: ssl.SSLContext) -> None:
    context.verify_flags |= NO_CHECK_TIME


of_connection("no-tls", breaks="CLIENT-TLS-001", summary="CONNECT is sent in the clear, whatever INFO says")(
    _securing(lambda client, info: False)
)
of_connection("tls-by-url-alone", breaks="CLIENT-TLS-001", summary="tls_required without tls:// is ignored")(
    _securing(lambda client, info: client.wants_tls)
)
of_connection("tls-if-configured", breaks="CLIENT-TLS-001", summary="no TLS without an authority to trust")(
    _securing(lambda client, info: bool(client.authority))
)
of_connection("tls-once", breaks="CLIENT-TLS-001", summary="the second connection is in the clear")(
    _securing(lambda client, info: not client.is_down)
)
of_connection(
    "tls-by-info-alone", breaks="CLIENT-TLS-002", summary="with an authority, TLS needs tls_required"
)(_securing(lambda client, info: bool(not client.authority or info.fields.get("tls_required"))))
of_connection("scheme-is-ignored", breaks="CLIENT-TLS-006", summary="tls:// alone does not ask for TLS")(
    _securing(lambda client, info: bool(client.authority or info.fields.get("tls_required")))
)
of_connection("verifies-nothing", breaks="CLIENT-TLS-003", summary="any certificate is accepted")(
    _verifying(_verify_nothing)
)
of_connection(
    "verifies-if-configured",
    breaks="CLIENT-TLS-003",
    summary="any certificate is accepted without an authority to trust",
)(_verifying(_verify_nothing, lambda client: not client.authority))
of_connection("verifies-no-name", breaks="CLIENT-TLS-004", summary="a certificate of any name is accepted")(
    _verifying(_verify_no_name)
)
of_connection("verifies-no-time", breaks="CLIENT-TLS-005", summary="expired certificates are accepted")(
    _verifying(_verify_no_time)
)
