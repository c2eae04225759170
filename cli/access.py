"""Options for URLs that take more than a user and a password: TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from plumbline.cli.options import keyword, with_options
from plumbline.conformance.access import Access
from plumbline.tls import TlsOptions

File = Path | None

OPTIONS = {
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


def with_access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``access: Access`` by an option for each of its parts."""
    options = [keyword(name, annotation) for name, annotation in OPTIONS.items()]
    return with_options(command, "access", options, _access)


def _access(tls_ca: File, tls_cert: File, tls_key: File, tls_name: str | None, **_: Any) -> Access:
    return Access(tls=TlsOptions(_whole(tls_ca), _whole(tls_cert), _whole(tls_key), tls_name or ""))


def _whole(path: Path | None) -> Path | None:
    """Independent of the working folder: reports show how to repeat a check."""
    return path.resolve() if path else None
