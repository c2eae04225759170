"""Faults of encrypted connections: CLIENT-AMQPS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.mutation.broken_amqp_client import Line, change_command, fault

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL


def verifying(module: Any, alter: Callable[[ssl.SSLContext], None]) -> None:
    """The settings of TLS, altered."""

    def create(cafile: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=cafile)
        alter(context)
        return context

    module.ssl = SimpleNamespace(create_default_context=create)


def in_the_clear(command: Line) -> Line:
    """The URL says amqp://, and nothing of TLS is set."""
    command["url"] = command["url"].replace("amqps://", "amqp://")
    return {name: value for name, value in command.items() if name != "tls_ca"}


@fault("amqps-is-amqp", "CLIENT-AMQPS-001")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "connect", in_the_clear)


@fault("amqps-falls-back-to-the-clear", "CLIENT-AMQPS-001")
def _(_: Any, adapter: Any) -> None:
    whole = adapter.do_connect

    async def connect(command: Line) -> Any:
        try:
            return await whole(dict(command))
        except OSError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise
            return await whole(in_the_clear(dict(command)))

    adapter.do_connect = connect


def verify_nothing(context: ssl.SSLContext) -> None:
    """Any certificate will do."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


@fault("any-certificate-is-accepted", "CLIENT-AMQPS-002")
def _(module: Any, _: Any) -> None:
    verifying(module, verify_nothing)


@fault("any-authority-is-accepted", "CLIENT-AMQPS-002")
def _(module: Any, adapter: Any) -> None:
    whole = adapter.do_connect

    async def connect(command: Line) -> Any:
        try:
            return await whole(dict(command))
        except OSError as error:
            if "local issuer" not in str(error) and "self-signed" not in str(error):
                raise
            verifying(module, verify_nothing)
            return await whole(command)

    adapter.do_connect = connect


@fault("a-certificate-of-any-name-is-accepted", "CLIENT-AMQPS-003")
def _(module: Any, _: Any) -> None:
    verifying(module, lambda context: setattr(context, "check_hostname", False))


@fault("expired-certificates-are-accepted", "CLIENT-AMQPS-004")
def _(module: Any, _: Any) -> None:
    verifying(module, lambda context: setattr(context, "verify_flags", context.verify_flags | NO_CHECK_TIME))
