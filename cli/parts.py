"""What verify and explore are handed: the embedded brokers, real servers, reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer

from plumbline.cli.brokers import (
    MAIN,
    broker_program,
    broker_with,
    configurations,
    flags_of,
    served_at,
    with_jetstream,
)
from plumbline.cli.capture import capture

if TYPE_CHECKING:
    from plumbline.cli.verify import Paths
    from plumbline.conformance.explore.reference import Reference
    from plumbline.conformance.runner.verify import Consumer
    from plumbline.conformance.running import RunningTarget
    from plumbline.servers.targets import Software


class Parts:
    """The ``Services`` of ``cli.verify`` and ``cli.explore``, made of the other packages."""

    @contextmanager
    def embedded(self, level: str | None, defects: Sequence[str]) -> Iterator[RunningTarget]:
        """The reference broker, once for every configuration it can take, in threads of this process."""
        import msgspec

        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.interrupts import kept_from_children
        from plumbline.reference_broker.nats.config import Config

        with ExitStack() as running:
            urls: dict[str, str] = {}
            for name, variant in configurations().items():
                options = {**variant.config, **({"level": level} if level else {})}
                try:
                    broker = broker_with(Config.of(**options), defects)
                except ValueError as error:
                    if name == MAIN:
                        raise UsageProblem(str(error)) from None
                    continue  # a configuration that the broker knows nothing of
                with kept_from_children():  # nor do its threads: what Ctrl-C interrupts is the run
                    urls[name] = running.enter_context(broker)
            flags = flags_of(level, defects)
            program = broker_program(flags)
            yield msgspec.structs.replace(served_at(urls, flags), has_level=True, program=program)

    @contextmanager
    def embedded_amqp(self, defects: Sequence[str]) -> Iterator[RunningTarget]:
        """The reference broker for AMQP, in a thread of this process."""
        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.conformance.running import RunningTarget
        from plumbline.conformance.urls import AmqpUrl
        from plumbline.interrupts import kept_from_children
        from plumbline.reference_broker.amqp.server import AmqpBroker

        try:
            broker = AmqpBroker.in_thread(defect=defects)
        except (LookupError, ValueError) as error:
            raise UsageProblem(str(error)) from None
        flags = tuple(f"--defect={name}" for name in defects)
        with ExitStack() as running:
            with kept_from_children():
                url = running.enter_context(broker)
            program = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1", *flags)
            yield RunningTarget(AmqpUrl.parse(url), arguments=("amqp", *flags), program=program)

    def started(self, binary: str) -> AbstractContextManager[RunningTarget]:
        """A real server, once for every configuration."""
        from plumbline.servers.targets import software_of

        return _started(software_of(binary), binary, ("--server", binary))

    @contextmanager
    def named(self, target: str) -> Iterator[RunningTarget]:
        """A real server by its name, once for every configuration."""
        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.servers import getting, targets

        try:
            known = targets.target(target)
            binary = getting.program(known, lambda said: typer.echo(f"plumbline: {said}", err=True))
        except targets.TargetError as problem:
            raise UsageProblem(str(problem)) from None
        with _started(known.software, str(binary), ("--target", known.name)) as running:
            yield running

    @contextmanager
    def embedded_alone(self, level: str, defects: Sequence[str]) -> Iterator[RunningTarget]:
        """The reference broker in a thread of this process."""
        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.conformance.running import RunningTarget
        from plumbline.conformance.urls import Url
        from plumbline.interrupts import kept_from_children
        from plumbline.reference_broker.nats.defects import DefectNotApplicable, UnknownDefect
        from plumbline.reference_broker.nats.server import NatsBroker

        try:
            broker = NatsBroker.in_thread(with_jetstream(level), defect=defects)
        except (UnknownDefect, DefectNotApplicable) as error:
            raise UsageProblem(str(error)) from None
        with ExitStack() as running:
            with kept_from_children():
                url = running.enter_context(broker)
            yield RunningTarget(Url.parse(url), program=broker_program(flags_of(level, defects)))

    @contextmanager
    def started_alone(self, binary: str) -> Iterator[RunningTarget]:
        """A real server in its plain configuration."""
        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.conformance.running import RunningTarget
        from plumbline.conformance.urls import Url
        from plumbline.servers.nats.nats_server import start_variants
        from plumbline.servers.process import ServerError

        try:
            with start_variants(binary, {MAIN: configurations()[MAIN].config}) as urls:
                yield RunningTarget(Url.parse(urls[MAIN]), program=(binary,))
        except ServerError as error:
            raise UsageProblem(str(error)) from None

    def reference(self, level: str) -> Callable[[], Reference]:
        """Reference brokers without sockets, on clocks of their own."""
        from plumbline.reference_broker.nats.virtual import VirtualBroker

        config = with_jetstream(level)
        return lambda: VirtualBroker(config)

    def consumers(self, paths: Paths) -> list[Consumer]:
        """The terminal, and the reports that were asked for."""
        from plumbline.conformance.runner.prepare import UsageProblem
        from plumbline.reports import ReportError, open_reports
        from plumbline.reports.terminal.live import Terminal

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
                capture=capture,
            )
        except ReportError as error:
            raise UsageProblem(str(error)) from None
        written = (
            paths.html, paths.json, paths.junit, paths.markdown, paths.sarif, paths.badge, paths.allure,
        )  # fmt: skip
        asked = [path for path in written if path]
        return [*files, Terminal(reports=asked)]


def _started(
    known: Software, binary: str, arguments: tuple[str, ...]
) -> AbstractContextManager[RunningTarget]:
    """A real server. ``arguments`` are those of ``plumbline verify`` that start it again."""
    start = _started_nats if known.protocol == "nats" else _started_amqp
    return start(known, binary, arguments)


@contextmanager
def _started_nats(known: Software, binary: str, arguments: tuple[str, ...]) -> Iterator[RunningTarget]:
    """Once for every configuration."""
    from msgspec.structs import replace

    from plumbline.conformance.runner.prepare import UsageProblem
    from plumbline.servers.nats.nats_server import start_variants
    from plumbline.servers.process import ServerError

    wanted = {name: variant.config for name, variant in configurations().items()}
    with ExitStack() as running:
        try:
            urls = running.enter_context(start_variants(binary, wanted))
        except ServerError as error:
            raise UsageProblem(str(error)) from None
        yield replace(served_at(urls, arguments), program=(binary,))


@contextmanager
def _started_amqp(known: Software, binary: str, arguments: tuple[str, ...]) -> Iterator[RunningTarget]:
    """In its only configuration."""
    from plumbline.conformance.runner.prepare import UsageProblem
    from plumbline.conformance.running import RunningTarget
    from plumbline.conformance.urls import AmqpUrl
    from plumbline.servers.process import ServerError
    from plumbline.servers.starting import server_class

    program = (sys.executable, "-m", "plumbline.servers.foreground", known.name, binary)
    with ExitStack() as running:
        try:
            server = running.enter_context(server_class(known)(binary))
        except ServerError as error:
            raise UsageProblem(str(error)) from None
        url = AmqpUrl.parse(server.url)
        yield RunningTarget(url, arguments=arguments, program=program, fresh=server.fresh)
