"""Broken AMQP clients: the adapter of aio-pika with one exact fault each, as a program.

A fault changes what goes into the adapter (commands), what comes out of it (lines), or one method of the
library below it. ``breaks`` names the requirements that must turn red. The faults themselves:
``broken_amqp_publishing``, ``broken_amqp_consuming``, ``broken_amqp_recovering``, ``broken_amqp_tls``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import aiormq.channel
import aiormq.connection
from msgspec import Struct

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "conformance" / "clients" / "adapters" / "aio_pika" / "adapter.py"
Channel: Any = aiormq.channel.Channel  # Any, since its methods are replaced
Connection: Any = aiormq.connection.Connection
Line = dict[str, Any]
Change = Callable[[Line], Line | None]


class Fault(Struct, frozen=True):
    """One fault: ``alter`` changes the loaded module of the adapter and its instance."""

    name: str
    breaks: tuple[str, ...]
    alter: Callable[[Any, Any], None]


FAULTS: dict[str, Fault] = {}


def fault(name: str, *breaks: str) -> Callable[[Callable[[Any, Any], None]], None]:
    """Register the decorated function."""

    def register(alter: Callable[[Any, Any], None]) -> None:
        FAULTS[name] = Fault(name, breaks, alter)

    return register


def change_lines(module: Any, change: Change) -> None:
    """Each line of the adapter is changed on its way out; None: it is not written."""
    original = module.say

    def say(**line: Any) -> None:
        if (changed := change(line)) is not None:
            original(**changed)

    module.say = say


def change_command(adapter: Any, do: str, change: Change) -> None:
    """Each command of that name is changed before the adapter gets it; None: it does nothing."""
    name = "do_" + do.replace(".", "_")
    original = getattr(adapter, name)

    async def act(command: Line) -> Any:
        changed = change(dict(command))
        return None if changed is None else await original(changed)

    setattr(adapter, name, act)


def hiding(event: str) -> Callable[[Any, Any], None]:
    """The library does not report this event."""
    return lambda module, _: change_lines(module, lambda line: None if line.get("event") == event else line)


def load() -> ModuleType:
    """The adapter of aio-pika as a module."""
    found = importlib.util.spec_from_file_location("plumbline_aio_pika_adapter", ADAPTER)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def faults() -> dict[str, Fault]:
    """All of them, by name."""
    for module in ("publishing", "consuming", "recovering", "tls"):
        importlib.import_module(f"tests.mutation.broken_amqp_{module}")
    return FAULTS


def command(name: str) -> tuple[str, ...]:
    """What starts the adapter with that fault, wherever it is started."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {__name__} import main; main({name!r})"
    return (sys.executable, "-c", program)


def main(name: str) -> None:
    """Be an adapter with that fault."""
    module = load()
    adapter = module.Adapter()
    faults()[name].alter(module, adapter)
    module.run(adapter)
