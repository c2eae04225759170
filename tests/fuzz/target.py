"""What a fuzzer gives bytes to: a function with rules that hold for every input, and inputs to begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from random import Random

from msgspec import Struct

# Name of a target -> its module. A module is imported only when one of its targets runs: the fuzzer has to
# prepare what it imports.
MODULES = {
    "nats-codec": "tests.fuzz.wire_nats",
    "nats-jetstream": "tests.fuzz.wire_nats",
    "amqp-codec": "tests.fuzz.wire_amqp",
    "amqp-fields": "tests.fuzz.wire_amqp",
    "nats-core": "tests.fuzz.broker_nats",
    "amqp-core": "tests.fuzz.broker_amqp",
    "nats-store": "tests.fuzz.stores",
    "amqp-store": "tests.fuzz.stores",
    "traces": "tests.fuzz.documents",
    "broker-config": "tests.fuzz.documents",
    "nats-server-config": "tests.fuzz.documents",
    "waivers": "tests.fuzz.documents",
    "server-tables": "tests.fuzz.documents",
    "variants": "tests.fuzz.documents",
    "fault-lines": "tests.fuzz.documents",
    "reassembly": "tests.fuzz.packets",
    "segments": "tests.fuzz.packets",
    "control": "tests.fuzz.control",
}


class Target(Struct, frozen=True):
    """``run`` raises if a rule does not hold for the bytes.

    ``seeds`` gives inputs to begin with, ``words`` bytes that mean something in this input. ``executions`` is
    how many the short form in pytest makes. ``long`` makes a long input, mostly right, for ``--bytes``.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: Sequence[bytes] = ()
    executions: int = 2000
    long: Callable[[Random], bytes] | None = None


def load(name: str) -> Target:
    """The target of that name. Raises ``KeyError`` if there is none."""
    found: dict[str, Target] = {one.name: one for one in import_module(MODULES[name]).TARGETS}
    return found[name]
