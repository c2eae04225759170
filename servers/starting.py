"""From a software of ``targets.toml`` to a server of it: by its module, or by its command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from plumbline.servers.process import ServerError, ServerProcess
from plumbline.servers.start_command import KNOWN, PROGRAM, CommandServer, StartCommand, start_command
from plumbline.servers.targets import Software


def server_class(known: Software) -> type[ServerProcess]:
    """``SERVER`` of the module that ``module`` names, in the folder of the protocol."""
    module = importlib.import_module(f"plumbline.servers.{known.protocol}.{known.module}")
    found: type[ServerProcess] = module.SERVER
    return found


def command_of(known: Software) -> StartCommand:
    """How a software is started that has ``start``. Raises ``TargetError`` if its table is wrong."""
    return start_command(
        f"targets.toml: [{known.name}]",
        protocol=known.protocol,
        start=known.start,
        ready=known.ready,
        stop=known.stop,
        environment=known.environment,
        files=known.files,
        fresh=known.fresh,
        level=known.level,
        known=(PROGRAM, *KNOWN),
    )


def new_server(
    known: Software,
    program: Path | str,
    data: Path | None = None,
    *,
    config: Mapping[str, object] | None = None,
    apart: bool = True,
) -> ServerProcess:
    """One server, not started yet. Raises ``ServerError`` if ``program`` is none."""
    if known.start:
        return CommandServer(program, command_of(known), config, data, apart=apart)
    if config is not None:
        raise ServerError(f"{known.name} is configured by its module")
    return server_class(known)(program, data, apart=apart)
