"""The target of verify and explore: chosen on the command line, started if need be, ready for connections."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from plumbline.cli.embedded_brokers import EMBEDDED_AMQP, MAIN, broker_program, broker_with, flags_of
from plumbline.cli.output import conceal, warn
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.urls import AccessRefusedError, AmqpUrl, AnyUrl, NatsUrl, parse_url
from plumbline.errors import TargetUnreachable, UsageProblem
from plumbline.interpreter import python_command

if TYPE_CHECKING:
    from plumbline.conformance.targets.variants import Variant
    from plumbline.servers.start_command import CommandServer, StartCommand
    from plumbline.servers.targets import Software

NATS, AMQP = "nats", "amqp"


class TargetChoice(Struct, frozen=True):
    """What a command line says about the target; nothing: the embedded reference broker for NATS."""

    url: str = ""  # or EMBEDDED_AMQP
    server: str | None = None
    target: str | None = None
    level: str | None = None
    defects: tuple[str, ...] = ()
    password: str | None = None  # for the URL, if it has none
    access: Access = Access()
    targets_file: Path | None = None  # where ``target`` may be


def choose_target(
    choice: TargetChoice, configurations: Mapping[str, Variant], protocols: Collection[str] = (NATS, AMQP)
) -> AbstractContextManager[RunningTarget]:
    """The target, started in each of these configurations unless it is a URL. ``MAIN`` must be one of them.

    ``protocols`` are those that the command supports. Raises ``PlumblineError``, also when it is entered.
    """
    url, server, target = choice.url, choice.server, choice.target
    if sum(map(bool, (url, server, target))) > 1:
        raise UsageProblem("give only one of URL, --server and --target")
    is_embedded_amqp = url == EMBEDDED_AMQP and AMQP in protocols
    if choice.defects and (url or server or target) and not is_embedded_amqp:
        raise UsageProblem(
            "--defect works only with the embedded reference broker: remove the URL, --server and --target"
        )
    if not url or is_embedded_amqp:
        choice.access.require_none()
    if choice.targets_file is not None:
        return _users(choice.targets_file, target, configurations, protocols)
    if target:
        return _named(target, configurations, protocols)
    if server:
        return _program(server, configurations, protocols)
    if is_embedded_amqp:
        return _embedded_amqp(choice)
    if url:
        return nullcontext(
            RunningTarget(_first_that_answers([_named_url(one, choice) for one in _seeds(url)]))
        )
    return _embedded_nats(choice, configurations)


def _seeds(text: str) -> list[str]:
    """The URLs of one server or cluster, which commas separate. A comma in a password is no separator."""
    return re.split(r",(?=\w+://)", text) if "://" in text else text.split(",")


def _named_url(text: str, choice: TargetChoice) -> AnyUrl:
    """With the login and the options that were given."""
    url = parse_url(text)
    if choice.password is not None:
        url = url.with_password(choice.password)
    url = choice.access.applied_to(url)
    conceal(url.mask)
    return url


def _first_that_answers(urls: Sequence[AnyUrl]) -> AnyUrl:
    """Raises ``TargetUnreachable`` if none of several does; a single one is looked at later."""
    if len(urls) == 1:
        return urls[0]
    from plumbline.conformance.targets.target import probe

    problems: list[str] = []
    for url in urls:
        try:
            probe(url)
        except TargetUnreachable as error:
            problems.append(str(error))
        except AccessRefusedError:
            return url  # it answers, and the run says what is wrong
        else:
            return url
    raise TargetUnreachable(" ".join(problems))


@contextmanager
def _embedded_nats(choice: TargetChoice, configurations: Mapping[str, Variant]) -> Iterator[RunningTarget]:
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
        started = _running_at(urls, configurations, flags)
        yield replace(started, has_level=True, program=broker_program(flags))


@contextmanager
def _embedded_amqp(choice: TargetChoice) -> Iterator[RunningTarget]:
    """The reference broker for AMQP, in a thread of this process."""
    from plumbline.interrupts import kept_from_children
    from plumbline.reference_broker.amqp.server import AmqpBroker

    broker = AmqpBroker.in_thread(defect=choice.defects)
    flags = tuple(f"--defect={name}" for name in choice.defects)
    with ExitStack() as running:
        with kept_from_children():
            url = running.enter_context(broker)
        program = python_command("-m", "plumbline", "broker", "amqp", "-p", "-1", *flags)
        url_of_broker = AmqpUrl.parse(url)
        arguments = ("amqp", *flags)
        yield RunningTarget(url_of_broker, arguments=arguments, program=program, takes_settings=True)


def _program(
    binary: str, configurations: Mapping[str, Variant], protocols: Collection[str]
) -> AbstractContextManager[RunningTarget]:
    """A real server by its program. Which software it is, the name of the program says."""
    from plumbline.servers.targets import software_of

    known = software_of(binary)
    _require_protocol(known.protocol, binary, protocols)
    return _started(known, binary, ("--server", binary), configurations)


@contextmanager
def _named(
    target: str, configurations: Mapping[str, Variant], protocols: Collection[str]
) -> Iterator[RunningTarget]:
    """A real server by its name, installed if need be."""
    from plumbline.servers import getting, targets

    known = targets.target(target)
    _require_protocol(known.software.protocol, target, protocols)
    binary = getting.obtain_program(known, warn)
    arguments = ("--target", known.name)
    with _started(known.software, str(binary), arguments, configurations, known.nodes) as running:
        yield running


@contextmanager
def _users(
    path: Path, name: str | None, configurations: Mapping[str, Variant], protocols: Collection[str]
) -> Iterator[RunningTarget]:
    """A server of a user's file."""
    from plumbline.servers.user_targets import UserServer, user_target, user_targets

    if name is None:
        raise UsageProblem(f"--targets-file needs --target; {path} has {', '.join(user_targets(path))}")
    known = user_target(path, name)
    _require_protocol(known.protocol, name, protocols)
    arguments = ("--targets-file", str(known.file), "--target", name)
    program = python_command("-m", "plumbline.servers.user_foreground", str(known.file), name)
    with _by_command(
        known.command, lambda config: UserServer(known, config), arguments, program, configurations
    ) as running:
        yield running


@contextmanager
def _by_command(
    command: StartCommand,
    make: Callable[[Mapping[str, object]], CommandServer],
    arguments: tuple[str, ...],
    program: tuple[str, ...],
    configurations: Mapping[str, Variant],
) -> Iterator[RunningTarget]:
    """A server that one command starts, ``make(CONFIG)``; only the plain one, if it takes no configuration.

    ``program`` starts another in the foreground."""
    from plumbline.servers.variants import start_servers

    wanted = configurations if command.takes_config else {MAIN: configurations[MAIN]}
    with start_servers({one: make(wanted[one].config) for one in wanted}) as urls:
        if command.protocol == AMQP:
            running = RunningTarget(AmqpUrl.parse(urls[MAIN]), arguments=arguments)
        else:
            running = _running_at(urls, wanted, arguments)
        yield replace(
            running,
            program=program if command.keeps_store or command.fresh else (),
            keeps_store=command.keeps_store,
            fresh=command.fresh,
            level=command.level,
        )


def _started(
    known: Software,
    binary: str,
    arguments: tuple[str, ...],
    configurations: Mapping[str, Variant],
    nodes: int = 1,
) -> AbstractContextManager[RunningTarget]:
    """A real server. ``arguments`` are those of ``plumbline verify`` that start it again."""
    if known.start:
        return _started_by_command(known, binary, arguments, configurations)
    if known.protocol == NATS:
        return _started_nats(binary, arguments, configurations, nodes)
    return _started_amqp(known, binary, arguments, nodes)


def _started_by_command(
    known: Software, binary: str, arguments: tuple[str, ...], configurations: Mapping[str, Variant]
) -> AbstractContextManager[RunningTarget]:
    from plumbline.servers.start_command import CommandServer
    from plumbline.servers.starting import command_of

    command = command_of(known)
    program = python_command("-m", "plumbline.servers.foreground", known.name, binary)
    return _by_command(
        command, lambda config: CommandServer(binary, command, config), arguments, program, configurations
    )


@contextmanager
def _started_nats(
    binary: str, arguments: tuple[str, ...], configurations: Mapping[str, Variant], nodes: int
) -> Iterator[RunningTarget]:
    """Once for every configuration; ``nodes`` of the plain one are a cluster."""
    from plumbline.servers.nats.variants import start_variants

    configs = {name: one.config for name, one in configurations.items()}
    with start_variants(binary, configs, {MAIN: nodes}) as urls:
        yield replace(_running_at(urls, configurations, arguments), program=(binary,))


@contextmanager
def _started_amqp(
    known: Software, binary: str, arguments: tuple[str, ...], nodes: int
) -> Iterator[RunningTarget]:
    """In its only configuration. A check that restarts its server gets one that is alone."""
    from plumbline.servers.amqp.rabbitmq_cluster import RabbitMQCluster
    from plumbline.servers.starting import server_class

    program = python_command("-m", "plumbline.servers.foreground", known.name, binary)
    kind = server_class(known)
    with RabbitMQCluster(binary, nodes) if nodes > 1 else kind(binary) as server:
        yield RunningTarget(
            AmqpUrl.parse(server.url),
            arguments=arguments,
            program=program,
            takes_settings=kind.takes_settings,
            fresh=server.fresh,
        )


def _require_protocol(protocol: str, name: str, protocols: Collection[str]) -> None:
    if protocol not in protocols:
        raise UsageProblem(f"{name} is a server for {protocol}; this command supports {', '.join(protocols)}")


def _running_at(
    urls: Mapping[str, str], configurations: Mapping[str, Variant], arguments: tuple[str, ...]
) -> RunningTarget:
    """Servers of several configurations, with the credentials that each asks for."""
    ready = {
        name: NatsUrl.parse(configurations[name].url(NatsUrl.parse(url).address))
        for name, url in urls.items()
    }
    return RunningTarget(ready.pop(MAIN), ready, arguments)
