"""``plumbline verify``: flags in, exit code out. What it is composed of is handed in by ``plumbline.py``.

This module knows neither the reference broker nor the reports: ``Services`` is how it reaches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer
from msgspec import Struct

from conformance.prepare import Prepared, UsageProblem, Wanted, prepare
from conformance.target import TargetUnreachable
from conformance.verdicts import ExitCode
from conformance.verify import Consumer, run_suite
from conformance.waivers import draft


class Served(Struct, frozen=True):
    """A target: its URL, variants (name -> URL), and, if Plumbline started it, the flags that do so again."""

    url: str
    variants: dict[str, str]
    arguments: tuple[str, ...] | None = None


class Paths(Struct, frozen=True):
    """Where reports go; None: not wanted."""

    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    markdown: Path | None = None


class Services(Protocol):
    """What the command needs of the other packages."""

    def embedded(self, level: str | None, defects: Sequence[str]) -> AbstractContextManager[Served]:
        """The reference broker and its variants. Raises ``UsageProblem``."""

    def started(self, binary: str) -> AbstractContextManager[Served]:
        """A server binary, started once for each variant. Raises ``UsageProblem``."""

    def consumers(self, paths: Paths) -> list[Consumer]:
        """The terminal and the reports asked for. Raises ``UsageProblem`` if one cannot be written."""


EPILOG = """
Examples:

\b
  plumbline verify                                   the embedded reference broker
  plumbline verify nats://127.0.0.1:4222             any server
  plumbline verify nats://user:password@host:4222 --select 'JS-PULL-*' --strict --html report.html
  plumbline verify --server /usr/sbin/nats-server    start that program, in every configuration needed
  plumbline verify URL --write-waivers waivers.toml  draft the list of known failures from a run
  plumbline verify URL --trace my.trace              run a trace of your own
  plumbline verify URL -- -k pull --alluredir out    what follows -- goes to pytest

\b
Exit codes: 0 conformant, 1 not conformant, 2 usage or configuration,
3 target unreachable or lost, 4 error of Plumbline itself.
"""


def register(app: typer.Typer, services: Services) -> None:
    """Mount ``verify`` on ``app``."""

    @app.command(epilog=EPILOG)
    def verify(
        context: typer.Context,
        url: Annotated[
            str | None,
            typer.Argument(
                help="nats://[user:password@|token@]host[:port]. Default: the embedded reference broker."
            ),
        ] = None,
        server: Annotated[
            str | None,
            typer.Option(
                metavar="BINARY",
                help="Start this program (it must take nats-server's -c FILE) instead of a URL.",
            ),
        ] = None,
        select: Annotated[
            list[str] | None,
            typer.Option(
                metavar="PATTERN", help="Only these requirements or checks, e.g. 'JS-PULL-*'. Repeatable."
            ),
        ] = None,
        strict: Annotated[
            bool, typer.Option("--strict", help="A failed SHOULD turns the run red too.")
        ] = False,
        level: Annotated[
            str | None,
            typer.Option(
                metavar="VERSION",
                help="Protocol level to hold the target to, e.g. 2.9. Default: what it reports.",
            ),
        ] = None,
        variant: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME=URL", help="The same server software with another configuration. Repeatable."
            ),
        ] = None,
        waivers: Annotated[Path | None, typer.Option(metavar="FILE", help="Known failures (TOML).")] = None,
        write_waivers: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Draft a waiver file from this run's failures.")
        ] = None,
        trace: Annotated[
            list[Path] | None,
            typer.Option(
                metavar="FILE", help="A trace of your own; without --select it runs alone. Repeatable."
            ),
        ] = None,
        json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON.")] = None,
        junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
        html: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")
        ] = None,
        markdown: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write a Markdown summary.")
        ] = None,
        workers: Annotated[
            int | None,
            typer.Option("--workers", "-n", min=0, help="Processes that run checks; 0: this one alone."),
        ] = None,
        defect: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="Give the embedded broker a deliberate fault (plumbline broker nats --list-defects).",
            ),
        ] = None,
        pytest_args: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    ) -> None:
        """Hold a server up against its protocol and say what became of every requirement."""
        if url is not None and url.startswith("-"):  # `plumbline verify -- -k pull`: no URL was given
            pytest_args, url = [url, *(pytest_args or [])], None
        try:
            raise typer.Exit(
                _verify(
                    services,
                    _served(services, url, server, level, defect or []),
                    Wanted(
                        url="",
                        level=level,
                        variants=tuple(variant or ()),
                        select=tuple(select or ()),
                        waivers=waivers,
                        traces=tuple(path.resolve() for path in trace or ()),
                        strict=strict,
                    ),
                    Paths(json, junit, html, markdown),
                    write_waivers,
                    workers,
                    pytest_args or [],
                )
            )
        except UsageProblem as problem:
            typer.echo(f"plumbline: {problem}", err=True)
            raise typer.Exit(ExitCode.USAGE) from None
        except TargetUnreachable as problem:
            typer.echo(f"plumbline: {problem}", err=True)
            raise typer.Exit(ExitCode.TARGET_LOST) from None


def _served(
    services: Services, url: str | None, server: str | None, level: str | None, defects: Sequence[str]
) -> AbstractContextManager[Served]:
    if url is not None and server is not None:
        raise UsageProblem("give a URL or --server, one of the two")
    if defects and (url or server):
        raise UsageProblem("--defect is for the embedded reference broker: leave out the URL and --server")
    if server is not None:
        return services.started(server)
    if url is not None:
        return nullcontext(Served(url, {}))
    return services.embedded(level, defects)


def _verify(
    services: Services,
    target: AbstractContextManager[Served],
    wanted: Wanted,
    paths: Paths,
    write_waivers: Path | None,
    workers: int | None,
    pytest_args: Sequence[str],
) -> int:
    consumers = services.consumers(paths)
    with target as served:
        variants = (*(f"{name}={url}" for name, url in served.variants.items()), *wanted.variants)
        prepared = prepare(msgspec.structs.replace(wanted, url=served.url, variants=variants))
        prepared.access.target = msgspec.structs.replace(
            prepared.access.target, arguments=_arguments(served, prepared)
        )
        finished = run_suite(prepared, consumers, workers=workers, pytest_args=pytest_args)
    if finished.result is None and finished.exit_code == ExitCode.HARNESS_ERROR:
        typer.echo(
            "plumbline: the run ended without a result; `-- -p terminal` shows what pytest says", err=True
        )
    if write_waivers is not None and finished.result is not None:
        text = draft(finished.result.checks, finished.result.target.version)
        try:
            write_waivers.write_text(text, "utf-8")
        except OSError as error:
            raise UsageProblem(f"--write-waivers {write_waivers}: {error.strerror}") from None
    return finished.exit_code


def _arguments(served: Served, prepared: Prepared) -> tuple[str, ...]:
    """What reaches target and traces again on a command line, without secrets: reports show it."""
    traces = tuple(f"--trace={path}" for path in prepared.wanted.traces)
    if served.arguments is not None:
        return (*served.arguments, *traces)
    target = prepared.access.target
    variants = (f"--variant={name}={prepared.access.url_of(name)}" for name in target.variants)
    return (target.url, *variants, *traces)
