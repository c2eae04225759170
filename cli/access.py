"""Options for servers that one reaches by more than a URL: TLS and logins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from plumbline.cli.options import keyword, with_options
from plumbline.conformance.access import Access
from plumbline.tls import TlsOptions

File = Path | None

TLS_OPTIONS = {
    "tls_ca": Annotated[
        File,
        typer.Option(
            metavar="FILE",
            help="Certificate authority of a tls:// or amqps:// server (PEM). Default: those of the system.",
        ),
    ],
    "tls_cert": Annotated[
        File, typer.Option(metavar="FILE", help="Certificate to show to the server (PEM), with its key.")
    ],
    "tls_key": Annotated[
        File, typer.Option(metavar="FILE", help="Key of --tls-cert (PEM), if it is in a file of its own.")
    ],
    "tls_name": Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the server in its certificate, and in SNI. Default: the host of the URL.",
        ),
    ],
}
OPTIONS = {
    **TLS_OPTIONS,
    "nkey": Annotated[
        File, typer.Option(metavar="FILE", help="NATS: log in with the NKey whose seed is in FILE.")
    ],
    "creds": Annotated[
        File,
        typer.Option(metavar="FILE", help="NATS: log in with the JWT and the seed in FILE (.creds)."),
    ],
    "auth_mechanism": Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="AMQP: PLAIN (the default), AMQPLAIN, or EXTERNAL: the client certificate logs in.",
        ),
    ],
    "inbox_prefix": Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="NATS: subjects for answers begin with this, where the login may not use _INBOX.",
        ),
    ],
    "js_domain": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="NATS: the JetStream domain whose API is used: $JS.NAME.API."),
    ],
    "js_api_prefix": Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="NATS: what is used in place of $JS.API, as for imported APIs."),
    ],
}


def with_access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``access: Access`` by an option for each of its parts."""
    options = [keyword(name, annotation) for name, annotation in OPTIONS.items()]
    return with_options(command, "access", options, _access)


def with_tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``tls: TlsOptions`` by an option for each of its parts."""
    options = [keyword(name, annotation) for name, annotation in TLS_OPTIONS.items()]
    return with_options(command, "tls", options, _tls)


def _access(tls_ca: File, tls_cert: File, tls_key: File, tls_name: str | None, **others: Any) -> Access:
    whole: dict[str, Any] = {
        name: _whole(value) if isinstance(value, Path) else value for name, value in others.items()
    }
    return Access(tls=_tls(tls_ca, tls_cert, tls_key, tls_name), **whole)


def _tls(tls_ca: File, tls_cert: File, tls_key: File, tls_name: str | None) -> TlsOptions:
    return TlsOptions(_whole(tls_ca), _whole(tls_cert), _whole(tls_key), tls_name or "")


def _whole(path: Path | None) -> Path | None:
    """Independent of the working folder: reports show how to repeat a check."""
    return path.resolve() if path else None
