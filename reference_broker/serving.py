"""Runs a reference broker as a program: until a signal, or until its store cannot be written any more."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.descriptors import allow_many_descriptors
from plumbline.errors import PlumblineError
from plumbline.garbage import collect_seldom
from plumbline.reference_broker.durable import DurableShell
from plumbline.reference_broker.registry import Defect

ANY_PORT = -1

Tell = Callable[[str], None]
Reactions = Mapping[signal.Signals, Callable[[], None]]
_NONE: Reactions = {}


class CannotListen(PlumblineError):
    """The address is not free, or not one of this machine; the text says what to do."""


def defect_table(defects: Sequence[Defect[Any]]) -> list[str]:
    """The lines of a table: name, broken requirements, summary."""
    rows = [(one.name, " ".join(one.breaks), one.summary) for one in defects]
    names = max(len(name) for name, _, _ in rows)
    breaks = max(len(requirements) for _, requirements, _ in rows)
    return [
        f"{name:{names}}  {requirements:{breaks}}  {summary}"
        for name, requirements, summary in [("DEFECT", "BREAKS", "SUMMARY"), *rows]
    ]


def serve(
    broker: DurableShell, traits: Sequence[str], *, ready: Tell, warn: Tell, on_signal: Reactions = _NONE
) -> str:
    """Serve until SIGINT or SIGTERM. ``ready`` gets the line with the URL once clients can connect;
    ``warn`` gets each warning before; ``on_signal`` says what other signals do.
    Returns why the store failed, or "" after a signal.

    Raises ``CannotListen``, and ``StoreError`` if the store cannot be opened.
    """
    try:
        return asyncio.run(_serve(broker, traits, ready, warn, on_signal))
    except OSError as error:
        raise CannotListen(_cannot_listen(broker, error)) from None


def _cannot_listen(broker: DurableShell, error: OSError) -> str:
    address = f"{broker.host}:{broker.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use: choose another port with -p, or -p {ANY_PORT} for a free one"
    return f"cannot listen on {address}: {error.strerror or error}"


async def _serve(
    broker: DurableShell, traits: Sequence[str], ready: Tell, warn: Tell, on_signal: Reactions
) -> str:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number, react in on_signal.items():
        loop.add_signal_handler(number, react)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    broker.report = warn
    allow_many_descriptors()
    collect_seldom()
    async with broker:
        for warning in (*broker.warnings, *broker.exposure()):
            warn(f"warning: {warning}")
        suffix = f" ({', '.join(traits)})" if traits else ""
        ready(f"{broker.shown_url} ready{suffix}")
        await stopped_or_failed(stopped, broker)
    assert broker.failed is not None
    return broker.failed.result() if broker.failed.done() else ""  # it may have failed at its end


async def stopped_or_failed(stopped: asyncio.Event, broker: DurableShell) -> None:
    """Waits for a signal, or until the store cannot be written any more."""
    waiting = asyncio.ensure_future(stopped.wait())
    assert broker.failed is not None
    tasks: set[asyncio.Future[Any]] = {waiting, broker.failed}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
