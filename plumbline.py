"""The command ``plumbline``: mounts one sub-command per package, and is where the packages meet.

A package is imported when one of its commands is asked for: a broker starts in a blink, without the suite.
``Parts`` hands verify and explore what they may not import: the embedded broker, real servers, reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from conformance.cli import Paths, Served
    from conformance.clients.scenario import Stage
    from conformance.clients.stand import Stand
    from conformance.explore.cli import Running
    from conformance.explore.reference import Reference
    from conformance.monitors import Violation
    from conformance.variants import Variant
    from conformance.verdicts import Target, WireLine
    from conformance.verify import Consumer
    from proxy.record import RecordingProxy
    from reference_broker.nats.config import Config
    from reference_broker.nats.server import BrokerThread
    from reports.matrix.batch import Wanted

MAIN = "main"


class Parts:
    """The ``Services`` of ``conformance.cli`` and ``conformance.explore.cli``, made of the other packages."""

    @contextmanager
    def embedded(self, level: str | None, defects: Sequence[str]) -> Iterator[Served]:
        """The reference broker, once for every configuration it can take, in threads of this process."""
        import msgspec

        from conformance.interrupts import kept_from_children
        from conformance.prepare import UsageProblem
        from reference_broker.nats.config import Config

        with ExitStack() as running:
            urls: dict[str, str] = {}
            for name, variant in _configurations().items():
                options = {**variant.config, **({"level": level} if level else {})}
                try:
                    broker = _broker(Config.of(**options), defects)
                except ValueError as error:
                    if name == MAIN:
                        raise UsageProblem(str(error)) from None
                    continue  # a configuration that the broker knows nothing of
                with kept_from_children():  # nor do its threads: what Ctrl-C interrupts is the run
                    urls[name] = running.enter_context(broker)
            flags = _flags(level, defects)
            program = _broker_program(flags)
            yield msgspec.structs.replace(_served(urls, flags), has_level=True, program=program)

    @contextmanager
    def embedded_amqp(self, defects: Sequence[str]) -> Iterator[Served]:
        """The reference broker for AMQP, in a thread of this process."""
        from conformance.cli import Served
        from conformance.interrupts import kept_from_children
        from conformance.prepare import UsageProblem
        from reference_broker.amqp.server import AmqpBroker

        try:
            broker = AmqpBroker.in_thread(defect=defects)
        except (LookupError, ValueError) as error:
            raise UsageProblem(str(error)) from None
        flags = tuple(f"--defect={name}" for name in defects)
        with ExitStack() as running:
            with kept_from_children():
                url = running.enter_context(broker)
            program = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1", *flags)
            yield Served(url, {}, ("amqp", *flags), program=program)

    @contextmanager
    def started(self, binary: str) -> Iterator[Served]:
        """A real server, once for every configuration."""
        import msgspec

        from ci.garagemq import GarageMQ, is_garagemq
        from ci.qpid import Qpid, is_qpid
        from ci.rabbitmq import RabbitMQ, is_rabbitmq
        from ci.servers import ServerError, start_variants
        from conformance.cli import Served
        from conformance.prepare import UsageProblem

        if is_rabbitmq(binary):
            try:
                with RabbitMQ(binary) as node:
                    program = (sys.executable, "-m", "ci.rabbitmq_node", binary)
                    yield Served(node.url, {}, ("--server", binary), program=program)
            except ServerError as error:
                raise UsageProblem(str(error)) from None
            return
        if is_qpid(binary):
            try:
                with Qpid(binary) as server:
                    program = (sys.executable, "-m", "ci.qpid", binary)
                    yield Served(server.url, {}, ("--server", binary), program=program)
            except ServerError as error:
                raise UsageProblem(str(error)) from None
            return
        if is_garagemq(binary):
            try:
                with GarageMQ(binary) as broker:
                    program = (sys.executable, "-m", "ci.garagemq", binary)
                    yield Served(broker.url, {}, ("--server", binary), program=program, fresh=True)
            except ServerError as error:
                raise UsageProblem(str(error)) from None
            return
        configurations = {name: variant.config for name, variant in _configurations().items()}
        with ExitStack() as running:
            try:
                urls = running.enter_context(start_variants(binary, configurations))
            except ServerError as error:
                raise UsageProblem(str(error)) from None
            yield msgspec.structs.replace(_served(urls, ("--server", binary)), program=(binary,))

    @contextmanager
    def named(self, target: str) -> Iterator[Served]:
        """A real server by its name, once for every configuration."""
        import msgspec

        from ci import getting, targets
        from conformance.prepare import UsageProblem

        try:
            known = targets.target(target)
            binary = getting.program(known, lambda said: typer.echo(f"plumbline: {said}", err=True))
        except targets.TargetError as problem:
            raise UsageProblem(str(problem)) from None
        with self.started(str(binary)) as served:
            yield msgspec.structs.replace(served, arguments=("--target", known.name))

    @contextmanager
    def embedded_alone(self, level: str, defects: Sequence[str]) -> Iterator[Running]:
        """The reference broker in a thread of this process."""
        from conformance.explore.cli import Running
        from conformance.interrupts import kept_from_children
        from conformance.prepare import UsageProblem
        from reference_broker.nats.defects import DefectNotApplicable, UnknownDefect
        from reference_broker.nats.server import NatsBroker

        try:
            broker = NatsBroker.in_thread(_with_jetstream(level), defect=defects)
        except (UnknownDefect, DefectNotApplicable) as error:
            raise UsageProblem(str(error)) from None
        with ExitStack() as running:
            with kept_from_children():
                url = running.enter_context(broker)
            yield Running(url, _broker_program(_flags(level, defects)))

    @contextmanager
    def started_alone(self, binary: str) -> Iterator[Running]:
        """A real server in its plain configuration."""
        from ci.servers import ServerError, start_variants
        from conformance.explore.cli import Running
        from conformance.prepare import UsageProblem

        try:
            with start_variants(binary, {MAIN: _configurations()[MAIN].config}) as urls:
                yield Running(urls[MAIN], (binary,))
        except ServerError as error:
            raise UsageProblem(str(error)) from None

    def reference(self, level: str) -> Callable[[], Reference]:
        """Reference brokers without sockets, on clocks of their own."""
        from reference_broker.nats.virtual import VirtualBroker

        config = _with_jetstream(level)
        return lambda: VirtualBroker(config)

    def consumers(self, paths: Paths) -> list[Consumer]:
        """The terminal, and the reports that were asked for."""
        from conformance.prepare import UsageProblem
        from reports import ReportError, open_reports
        from reports.terminal import Terminal

        try:
            files = open_reports(
                json=paths.json,
                junit=paths.junit,
                html=paths.html,
                markdown=paths.markdown,
                sarif=paths.sarif,
                badge=paths.badge,
                allure=paths.allure,
                requirement_url=paths.requirement_url,
                capture=_capture,
            )
        except ReportError as error:
            raise UsageProblem(str(error)) from None
        written = (
            paths.html, paths.json, paths.junit, paths.markdown, paths.sarif, paths.badge, paths.allure,
        )  # fmt: skip
        asked = [path for path in written if path]
        return [*files, Terminal(reports=asked)]


class Stands(Parts):
    """The ``Stands`` of ``conformance.clients``: for each scenario a reference broker, watched."""

    @contextmanager
    def stand(self, protocol: str, stage: Stage) -> Iterator[Stand]:
        """Raises what the configuration, a defect or a fault says of itself if it is wrong."""
        from conformance.interrupts import kept_from_children
        from proxy.watching import watched

        with _broker_alone(protocol, stage.defects, stage.options) as url, ExitStack() as running:
            with kept_from_children():
                proxy = running.enter_context(watched(url, stage.faults))
            yield proxy

    @contextmanager
    def observed(self, faults: Sequence[str], capture: Path | None) -> Iterator[_Observed]:
        """Reference brokers, each behind a proxy that records, with monitors that follow the record."""
        import tempfile

        from conformance.prepare import UsageProblem
        from proxy.fault_language import FaultError
        from proxy.judging import LiveJudge
        from proxy.record import recorded

        observed = _Observed()
        with ExitStack() as running:
            folder = capture or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="plumbline-")))
            judging = running.enter_context(ExitStack())  # ends after the proxies have
            try:
                for protocol in ("nats", "amqp"):
                    url = running.enter_context(_broker_alone(protocol))
                    where = url.partition("://")[2].rpartition("@")[2].partition("/")[0]
                    plain = f"{protocol}://{where}"
                    proxy = running.enter_context(recorded(plain, folder / protocol, faults=faults))
                    judge = LiveJudge(proxy.files.path, protocol, observed.violations.append)
                    judge.start()
                    judging.callback(judge.end)
                    observed.proxies.append(proxy)
                    observed.urls[protocol] = url.replace(where, str(proxy.relay.address))
            except (FaultError, OSError) as error:
                raise UsageProblem(str(error)) from None
            yield observed


def _capture(target: Target, wire: Sequence[WireLine], began: float) -> bytes:
    """What a check saw, as a capture file."""
    from conformance.journal import MOST_RAW_BYTES
    from conformance.urls import BadUrl, parse_url
    from proxy.exchange_capture import NOWHERE, Exchanged, exchange_capture
    from proxy.pipe import Direction

    ways = {">": Direction.TO_SERVER, "<": Direction.TO_CLIENT}
    try:
        url = parse_url(target.url)
        server = url.host, url.port
    except BadUrl:
        server = NOWHERE
    exchange = (
        Exchanged(
            at=round((began + line.at) * 1e9),
            connection=line.connection,
            direction=ways.get(line.direction),
            raw=line.raw[:MOST_RAW_BYTES],
            text=line.text,
            cut=len(line.raw) >= MOST_RAW_BYTES,
        )
        for line in wire
    )
    return exchange_capture(exchange, server)


class _Observed:
    """See ``conformance.clients.observe``."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.violations: list[Violation] = []
        self.proxies: list[RecordingProxy] = []

    @property
    def connections(self) -> int:
        return sum(proxy.counters.accepted for proxy in self.proxies)


@contextmanager
def _broker_alone(
    protocol: str, defects: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """A reference broker in a thread that Ctrl-C does not reach."""
    from conformance.interrupts import kept_from_children
    from reference_broker.amqp.server import AmqpBroker
    from reference_broker.nats.server import NatsBroker

    kind = AmqpBroker if protocol == "amqp" else NatsBroker
    given = {"jetstream": True, **(options or {})} if protocol == "nats" else dict(options or {})
    with ExitStack() as running:
        with kept_from_children():
            url = running.enter_context(kind.in_thread(defect=defects, **given))
        yield url


def _flags(level: str | None, defects: Sequence[str]) -> tuple[str, ...]:
    return (*(f"--defect={name}" for name in defects), *([f"--level={level}"] if level else []))


def _broker_program(flags: Sequence[str]) -> tuple[str, ...]:
    """The reference broker as a program that takes nats-server's -c FILE."""
    return (sys.executable, "-m", "plumbline", "broker", "nats", *flags)


def _with_jetstream(level: str) -> Config:
    from conformance.prepare import UsageProblem
    from reference_broker.nats.config import Config

    try:
        return Config.of(level=level, jetstream=True)
    except ValueError as error:
        raise UsageProblem(str(error)) from None


def _broker(config: Config, defects: Sequence[str]) -> BrokerThread:
    """A configuration that cannot show the defect is served without: its checks then see a whole broker."""
    from reference_broker.nats.defects import DefectNotApplicable
    from reference_broker.nats.server import NatsBroker

    try:
        return NatsBroker.in_thread(config, defect=defects)
    except DefectNotApplicable:
        return NatsBroker.in_thread(config)


def _configurations() -> dict[str, Variant]:
    from conformance.variants import main_server, variants

    return {MAIN: main_server(), **variants()}


def _served(urls: Mapping[str, str], flags: tuple[str, ...]) -> Served:
    from conformance.cli import Served
    from conformance.target import Url

    known = _configurations()
    ready = {name: known[name].url(Url.parse(url).address) for name, url in urls.items()}
    return Served(ready.pop(MAIN), ready, flags)


def _conformance() -> typer.Typer:
    import conformance.browse
    import conformance.cli
    import conformance.explore.cli

    mounted = typer.Typer(rich_markup_mode=None)
    conformance.cli.register(mounted, Parts())
    conformance.explore.cli.register(mounted, Parts())
    conformance.browse.register(mounted)
    return mounted


def _reference_broker() -> typer.Typer:
    import reference_broker.cli

    mounted = typer.Typer(rich_markup_mode=None)
    mounted.add_typer(reference_broker.cli.app, name="broker")
    return mounted


def _gate() -> typer.Typer:
    import conformance.clients.cli
    import conformance.clients.observe

    mounted = typer.Typer(rich_markup_mode=None)
    conformance.clients.cli.register(mounted, Stands())
    conformance.clients.observe.register(mounted, Stands())
    return mounted


def _proxy() -> typer.Typer:
    import proxy.cli

    mounted = typer.Typer(rich_markup_mode=None)
    proxy.cli.register(mounted)
    return mounted


def _audit() -> typer.Typer:
    import pipeline.audit.cli

    mounted = typer.Typer(rich_markup_mode=None)
    pipeline.audit.cli.register(mounted)
    return mounted


def _judge() -> typer.Typer:
    import pipeline.cli

    mounted = typer.Typer(rich_markup_mode=None)
    pipeline.cli.register(mounted)
    return mounted


def _reports() -> typer.Typer:
    import reports.cli

    mounted = typer.Typer(rich_markup_mode=None)
    reports.cli.register(mounted, _every_target)
    return mounted


def _every_target(names: Sequence[str]) -> list[Wanted]:
    """What ``ci`` says that verifies each target, as ``reports`` wants it."""
    from ci import every, targets
    from reports import ReportError
    from reports.matrix.batch import Wanted

    try:
        return [Wanted(name, arguments) for name, arguments in every.runs(names)]
    except targets.TargetError as problem:
        raise ReportError(str(problem)) from None


def _ci() -> typer.Typer:
    import ci.cli

    return ci.cli.app


# What is listed, in this order, and who has it.
COMMANDS: dict[str, Callable[[], typer.Typer]] = {
    "verify": _conformance,
    "gate": _gate,
    "observe": _gate,
    "explore": _conformance,
    "list": _conformance,
    "explain": _conformance,
    "variants": _conformance,
    "report": _reports,
    "matrix": _reports,
    "targets": _ci,
    "broker": _reference_broker,
    "record": _proxy,
    "show": _proxy,
    "trace": _proxy,
    "diff": _proxy,
    "replay": _proxy,
    "mitm-addon": _proxy,
    "judge": _judge,
    "audit": _audit,
}


class Commands(TyperGroup):
    """The commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        for mount in dict.fromkeys(COMMANDS.values()):
            self._mount(mount)
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self._mount(COMMANDS[cmd_name])
        if cmd_name not in COMMANDS:
            self.list_commands(ctx)  # for the suggestions
        return self.commands.get(cmd_name)

    def _mount(self, mount: Callable[[], typer.Typer]) -> None:
        self.commands.update(typer.main.get_group(mount()).commands)


app = typer.Typer(
    name="plumbline",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which would eat the brackets of URLs and the line ends of examples
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help="Holds a message broker up against its protocol: NATS, JetStream, AMQP 0-9-1.")
def _plumbline() -> None:
    """Make a group of it though its commands come later."""


def main() -> None:
    """The entry point of the console script."""
    app(prog_name="plumbline")  # also as python -m plumbline


if __name__ == "__main__":
    main()
