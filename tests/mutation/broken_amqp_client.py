"""Broken AMQP clients: the adapter of aio-pika with one exact fault each, as a program.

aio-pika itself loses returned messages (CLIENT-RETURN-002, 005): here that is repaired first, so that a fault
is alone. A fault changes what goes into the adapter (commands), what comes out of it (lines), or one method
of the library below it. ``breaks`` names the requirements that must turn red. The faults themselves:
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


def forgetting(adapter: Any, *known: Any) -> None:
    """These collections are empty again when the adapter begins anew."""

    def forget(command: Line) -> Line:
        for collection in known:
            collection.clear()
        return command

    change_command(adapter, "reset", forget)


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


class TagsOfMessageId(dict[str, list[int]]):
    """What aiormq knows publishes by, for ids that are given twice: the oldest that waits comes back."""

    def __init__(self, channel: Any) -> None:
        super().__init__()
        self.channel = channel

    def __setitem__(self, message_id: str, tag: Any) -> None:
        self.setdefault(message_id, []).append(tag)

    def get(self, message_id: str, default: Any = None) -> Any:
        waiting = self.channel.confirmations
        tags = super().get(message_id, ())
        done = (type(None), aiormq.channel.Returning)
        return next((tag for tag in tags if type(waiting.get(tag)) not in done), default)


def repair_returns() -> None:
    """Aiormq reports what comes back on channels without confirms, and each of two with the same id."""
    create, on_return = Channel.__init__, Channel._on_return_frame

    def create_with_tags(channel: Any, *arguments: Any, **options: Any) -> None:
        create(channel, *arguments, **options)
        channel.message_id_delivery_tag = TagsOfMessageId(channel)

    async def on_return_frame(channel: Any, frame: Any) -> None:
        if channel.publisher_confirms:
            await on_return(channel, frame)
            return
        message = await channel._read_content(frame, await channel._Channel__get_content_header())
        for callback in channel.on_return_callbacks:
            callback(message)

    Channel.__init__ = create_with_tags
    Channel._on_return_frame = on_return_frame


def faults() -> dict[str, Fault]:
    """All of them, by name."""
    for module in ("publishing", "consuming", "recovering", "tls"):
        importlib.import_module(f"tests.mutation.broken_amqp_{module}")
    return FAULTS


def command(name: str) -> tuple[str, ...]:
    """What starts the adapter with that fault, or ("") with none, wherever it is started."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {__name__} import main; main({name!r})"
    return (sys.executable, "-c", program)


def main(name: str) -> None:
    """Be an adapter with that fault, or ("") with none."""
    module = load()
    adapter = module.Adapter()
    repair_returns()
    if name:
        faults()[name].alter(module, adapter)
    module.run(adapter)
