"""What every ``plumbline broker`` command does alike: defects listed, served until a signal."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Sequence
from typing import Any

import typer

from plumbline.errors import ExitCode, UsageProblem
from plumbline.reference_broker.durable import DurableShell
from plumbline.reference_broker.registry import Defect

ANY_PORT = -1


def show_defects(defects: Sequence[Defect[Any]]) -> None:
    """A table of them; then leave."""
    rows = [(one.name, " ".join(one.breaks), one.summary) for one in defects]
    names = max(len(name) for name, _, _ in rows)
    breaks = max(len(requirements) for _, requirements, _ in rows)
    for name, requirements, summary in [("DEFECT", "BREAKS", "WHAT IS WRONG"), *rows]:
        typer.echo(f"{name:{names}}  {requirements:{breaks}}  {summary}")
    raise typer.Exit


def run(broker: DurableShell, traits: Sequence[str]) -> None:
    """Serve until SIGINT or SIGTERM, or until the store cannot be written any more."""
    try:
        asyncio.run(_serve(broker, traits))
    except OSError as error:
        raise UsageProblem(_cannot_listen(broker, error)) from None


def _cannot_listen(broker: DurableShell, error: OSError) -> str:
    address = f"{broker.host}:{broker.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use: choose another port with -p, or -p {ANY_PORT} for a free one"
    return f"cannot listen on {address}: {error.strerror or error}"


async def _serve(broker: DurableShell, traits: Sequence[str]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with broker as url:
        for warning in broker.warnings:
            typer.echo(f"warning: {warning}", err=True)
        told = f" ({', '.join(traits)})" if traits else ""
        typer.echo(f"{url} ready{told}")
        await _ended_or_failed(ended, broker)


async def _ended_or_failed(ended: asyncio.Event, broker: DurableShell) -> None:
    """Returns once somebody asks for the end; leaves with 1 if the store cannot be written any more."""
    waiting = asyncio.ensure_future(ended.wait())
    assert broker.failed is not None
    tasks: set[asyncio.Future[Any]] = {waiting, broker.failed}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if broker.failed.done():
        typer.echo(broker.failed.result(), err=True)
        raise typer.Exit(ExitCode.NOT_CONFORMANT)
