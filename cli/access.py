"""Options for servers that one reaches by more than a URL: TLS and logins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from plumbline.access_options import ACCESS_OPTIONS, TLS_OPTIONS, AccessOption
from plumbline.cli.options import keyword, with_options
from plumbline.conformance.targets.access import access_of, tls_options_of


def with_access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``access: Access`` by an option for each of its parts."""
    options = [keyword(option.name, _annotation(option)) for option in ACCESS_OPTIONS]
    return with_options(command, "access", options, access_of)


def with_tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter ``tls: TlsOptions`` by an option for each of its parts."""
    options = [keyword(option.name, _annotation(option)) for option in TLS_OPTIONS]
    return with_options(command, "tls", options, tls_options_of)


def _annotation(option: AccessOption) -> Any:
    shown = typer.Option(metavar=option.metavar, help=option.help)
    return Annotated[Path | None, shown] if option.is_file else Annotated[str | None, shown]
