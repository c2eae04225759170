"""The target of verify and explore: chosen on the command line, started if need be, ready for connections."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec
import typer
from msgspec import Struct

from plumbline.cli.embedded_brokers import MAIN, broker_program, broker_with, flags_of
from plumbline.conformance.urls import Url
from plumbline.errors import UsageProblem

if TYPE_CHECKING:
    from plumbline.conformance.variants import Variant

NATS, AMQP = "nats", "amqp"
EMBEDDED_AMQP = "amqp"  # in the place of a URL: the embedded reference broker for AMQP


class Served(Struct, frozen=True):
    """A target: its URL, variants (name -> URL), and, if Plumbline started it, the flags that do so again."""

    url: str
    variants: dict[str, str]
    arguments: tuple[str, ...] | None = None
    has_level: bool = False  # the level asked for is the one it was started with, and reports
    program: tuple[str, ...] = ()  # a command that takes -c FILE and starts another server like it
    fresh: bool = False  # every check gets a server of its own, since this one survives no other


class TargetChoice(Struct, frozen=True):
    """What a command line says about the target; nothing: the embedded reference broker for NATS."""

    url: str = ""  # or EMBEDDED_AMQP
    server: str | None = None
    target: str | None = None
    level: str | None = None
    defects: tuple[str, ...] = ()


def choose_target(
    choice: TargetChoice, configurations: Mapping[str, Variant], protocols: Collection[str] = (NATS, AMQP)
) -> AbstractContextManager[Served]:
    """The target, started in each of these configurations unless it is a URL. ``MAIN`` must be one of them.

    ``protocols`` are those that the command supports. Raises ``PlumblineError``, also when it is entered.
    """
    url, server, target = choice.url, choice.server, choice.target
    if sum(map(bool, (url, server, target))) > 1:
        raise UsageProblem("give only one of URL, --server and --target")
    is_embedded_amqp = url == EMBEDDED_AMQP and AMQP in protocols
    if choice.defects and (url or server or target) and not is_embedded_amqp:
        raise UsageProblem(
            "--defect is for the embedded reference broker: leave out the URL, --server and --target"
        )
    if target:
        return _named(target, configurations, protocols)
    if server:
        return _started(server, configurations, protocols)
    if is_embedded_amqp:
        return _embedded_amqp(choice)
    if url:
        return nullcontext(Served(url, {}))
    return _embedded_nats(choice, configurations)


@contextmanager
def _embedded_nats(choice: TargetChoice, configurations: Mapping[str, Variant]) -> Iterator[Served]:
    """The reference broker, once for every configuration it can take, in threads of this process."""
    from plumbline.interrupts import kept_from_children
    from plumbline.reference_broker.nats.config import Config

    with ExitStack() as running:
        urls: dict[str, str] = {}
        for name, variant in configurations.items():
            options = {**variant.config, **({"level": choice.level} if choice.level else {})}
            try:
                broker = broker_with(Config.of(**options), choice.defects)
            except ValueError:
                if name == MAIN:
                    raise
                continue  # a configuration that the broker does not know
            with kept_from_children():  # Ctrl-C interrupts the run, and not the threads of the broker
                urls[name] = running.enter_context(broker)
        flags = flags_of(choice.level, choice.defects)
        served = _served_at(urls, configurations, flags)
        yield msgspec.structs.replace(served, has_level=True, program=broker_program(flags))


@contextmanager
def _embedded_amqp(choice: TargetChoice) -> Iterator[Served]:
    """The reference broker for AMQP, in a thread of this process."""
    from plumbline.interrupts import kept_from_children
    from plumbline.reference_broker.amqp.server import AmqpBroker

    broker = AmqpBroker.in_thread(defect=choice.defects)
    flags = tuple(f"--defect={name}" for name in choice.defects)
    with ExitStack() as running:
        with kept_from_children():
            url = running.enter_context(broker)
        program = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1", *flags)
        yield Served(url, {}, ("amqp", *flags), program=program)


@contextmanager
def _started(
    binary: str, configurations: Mapping[str, Variant], protocols: Collection[str]
) -> Iterator[Served]:
    """A real server: for NATS once for every configuration, for AMQP once."""
    from plumbline.servers.amqp.garagemq import GarageMQ, is_garagemq
    from plumbline.servers.amqp.qpid import Qpid, is_qpid
    from plumbline.servers.amqp.rabbitmq import RabbitMQ, is_rabbitmq
    from plumbline.servers.nats.nats_server import start_variants

    for is_one, start, program, fresh in (
        (is_rabbitmq, RabbitMQ, "plumbline.servers.amqp.rabbitmq_node", False),
        (is_qpid, Qpid, "plumbline.servers.amqp.qpid", False),
        (is_garagemq, GarageMQ, "plumbline.servers.amqp.garagemq", True),
    ):
        if is_one(binary):
            _require_protocol(AMQP, binary, protocols)
            with start(binary) as server:
                again = (sys.executable, "-m", program, binary)
                yield Served(server.url, {}, ("--server", binary), program=again, fresh=fresh)
            return
    with start_variants(binary, {name: one.config for name, one in configurations.items()}) as urls:
        served = _served_at(urls, configurations, ("--server", binary))
        yield msgspec.structs.replace(served, program=(binary,))


@contextmanager
def _named(
    target: str, configurations: Mapping[str, Variant], protocols: Collection[str]
) -> Iterator[Served]:
    """A real server by its name, installed if need be."""
    from plumbline.servers import getting, targets

    known = targets.target(target)
    _require_protocol(known.software.protocol, target, protocols)
    binary = getting.program(known, lambda line: typer.echo(f"plumbline: {line}", err=True))
    with _started(str(binary), configurations, protocols) as served:
        yield msgspec.structs.replace(served, arguments=("--target", known.name))


def _require_protocol(protocol: str, name: str, protocols: Collection[str]) -> None:
    if protocol not in protocols:
        raise UsageProblem(f"{name} is a server for {protocol}; this command supports {', '.join(protocols)}")


def _served_at(
    urls: Mapping[str, str], configurations: Mapping[str, Variant], flags: tuple[str, ...]
) -> Served:
    """Servers of several configurations, with the credentials that each asks for."""
    ready = {name: configurations[name].url(Url.parse(url).address) for name, url in urls.items()}
    return Served(ready.pop(MAIN), ready, flags)
