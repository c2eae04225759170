"""Reference brokers as the commands need them: alone, at a level, with defects, in every configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from plumbline.interpreter import python_command

if TYPE_CHECKING:
    from plumbline.conformance.targets.variants import Variant
    from plumbline.reference_broker.nats.config import Config
    from plumbline.reference_broker.nats.server import BrokerThread
    from plumbline.reference_broker.nats.virtual import VirtualBroker

EMBEDDED_AMQP = "amqp"  # in the place of a URL: the embedded reference broker for AMQP
MAIN = "main"


@contextmanager
def broker_alone(
    protocol: str, defects: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """A reference broker in a thread that Ctrl-C does not reach."""
    from plumbline.interrupts import kept_from_children
    from plumbline.reference_broker.amqp.server import AmqpBroker
    from plumbline.reference_broker.nats.server import NatsBroker

    kind = AmqpBroker if protocol == "amqp" else NatsBroker
    all_options = {"jetstream": True, **(options or {})} if protocol == "nats" else dict(options or {})
    with ExitStack() as running:
        with kept_from_children():
            url = running.enter_context(kind.in_thread(defect=defects, **all_options))
        yield url


def flags_of(level: str | None, defects: Sequence[str]) -> tuple[str, ...]:
    """What a person types for a broker of this level with these defects."""
    return (*(f"--defect={name}" for name in defects), *([f"--level={level}"] if level else []))


def broker_program(flags: Sequence[str]) -> tuple[str, ...]:
    """The reference broker as a program that takes nats-server's -c FILE."""
    return python_command("-m", "plumbline", "broker", "nats", *flags)


def with_jetstream(level: str) -> Config:
    """The plain configuration at a level. Raises ``ConfigError`` if there is no such level."""
    from plumbline.reference_broker.nats.config import Config

    return Config.of(level=level, jetstream=True)


def broker_with(config: Config, defects: Sequence[str]) -> BrokerThread:
    """A configuration that cannot show the defect is served without: its checks then see a whole broker."""
    from plumbline.reference_broker.nats.defects import DefectNotApplicableError
    from plumbline.reference_broker.nats.server import NatsBroker

    try:
        return NatsBroker.in_thread(config, defect=defects)
    except DefectNotApplicableError:
        return NatsBroker.in_thread(config)


def configurations() -> dict[str, Variant]:
    """Every configuration that a check may need, by name; ``MAIN`` is the plain one."""
    from plumbline.conformance.targets.variants import main_server, variants

    return {MAIN: main_server(), **variants()}


def virtual_brokers(level: str) -> Callable[[], VirtualBroker]:
    """Makes fresh brokers of that level without sockets, on clocks of their own. Raises UsageProblem."""
    from plumbline.reference_broker.nats.virtual import VirtualBroker

    config = with_jetstream(level)
    return lambda: VirtualBroker(config)
