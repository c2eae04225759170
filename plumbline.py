"""The command ``plumbline``: mounts one sub-command per package, and is where the packages meet.

``Parts`` hands the verify command what it may not import: the embedded broker, real servers, reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
import typer

import conformance.browse
import conformance.cli
import reference_broker.cli
from ci.servers import ServerError, start_variants
from conformance.cli import Paths, Served
from conformance.interrupts import kept_from_children
from conformance.prepare import UsageProblem
from conformance.target import Url
from conformance.variants import Variant, main_server, variants
from conformance.verify import Consumer
from reference_broker.nats.config import Config
from reference_broker.nats.defects import DefectNotApplicable
from reference_broker.nats.server import BrokerThread, NatsBroker
from reports import ReportError, open_reports
from reports.terminal import Terminal

MAIN = "main"


class Parts:
    """``conformance.cli.Services``, made of the other packages."""

    @contextmanager
    def embedded(self, level: str | None, defects: Sequence[str]) -> Iterator[Served]:
        """The reference broker, once for every configuration it can take, in threads of this process."""
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
            flags = (*(f"--defect={name}" for name in defects), *([f"--level={level}"] if level else []))
            yield msgspec.structs.replace(_served(urls, flags), has_level=True)

    @contextmanager
    def started(self, binary: str) -> Iterator[Served]:
        """A real server, once for every configuration."""
        configurations = {name: variant.config for name, variant in _configurations().items()}
        with ExitStack() as running:
            try:
                urls = running.enter_context(start_variants(binary, configurations))
            except ServerError as error:
                raise UsageProblem(str(error)) from None
            yield _served(urls, ("--server", binary))

    def consumers(self, paths: Paths) -> list[Consumer]:
        """The terminal, and the reports that were asked for."""
        try:
            files = open_reports(json=paths.json, junit=paths.junit, html=paths.html, markdown=paths.markdown)
        except ReportError as error:
            raise UsageProblem(str(error)) from None
        asked = [path for path in (paths.html, paths.json, paths.junit, paths.markdown) if path]
        return [*files, Terminal(reports=asked)]


def _broker(config: Config, defects: Sequence[str]) -> BrokerThread:
    """A configuration that cannot show the defect is served without: its checks then see a whole broker."""
    try:
        return NatsBroker.in_thread(config, defect=defects)
    except DefectNotApplicable:
        return NatsBroker.in_thread(config)


def _configurations() -> dict[str, Variant]:
    return {MAIN: main_server(), **variants()}


def _served(urls: Mapping[str, str], flags: tuple[str, ...]) -> Served:
    known = _configurations()
    ready = {name: known[name].url(Url.parse(url).address) for name, url in urls.items()}
    return Served(ready.pop(MAIN), ready, flags)


app = typer.Typer(
    name="plumbline",
    help="Holds a message broker up against its protocol: NATS and JetStream.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which would eat the brackets of URLs and the line ends of examples
    context_settings={"help_option_names": ["-h", "--help"]},
)
conformance.cli.register(app, Parts())
conformance.browse.register(app)
app.add_typer(reference_broker.cli.app, name="broker")


def main() -> None:
    """The entry point of the console script."""
    app(prog_name="plumbline")  # also as python -m plumbline


if __name__ == "__main__":
    main()
