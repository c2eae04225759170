"""``plumbline verify``: flags in, exit code out. What it is composed of is handed in by ``plumbline_parts``.

This module knows neither the reference broker nor the reports: ``Services`` is how it reaches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Protocol

import typer
from msgspec import Struct
from typer.core import TyperCommand

from plumbline.cli.exits import ended, ending
from plumbline.conformance.runner.prepare import UsageProblem, Wanted, prepare, target_url
from plumbline.conformance.runner.verify import Consumer, Finished, run_suite
from plumbline.conformance.running import RunningTarget
from plumbline.conformance.waivers import draft
from plumbline.verdicts import ExitCode


class Paths(Struct, frozen=True):
    """Where reports go; None: not wanted."""

    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    sarif: Path | None = None
    badge: Path | None = None
    allure: Path | None = None
    requirement_url: str = ""  # where links to requirements lead, with {group} and {id} in it


class Services(Protocol):
    """What the command needs of the other packages."""

    def embedded(self, level: str | None, defects: Sequence[str]) -> AbstractContextManager[RunningTarget]:
        """The reference broker and its variants. Raises ``UsageProblem``."""

    def embedded_amqp(self, defects: Sequence[str]) -> AbstractContextManager[RunningTarget]:
        """The reference broker for AMQP. Raises ``UsageProblem``."""

    def started(self, binary: str) -> AbstractContextManager[RunningTarget]:
        """A server binary, started once for each variant. Raises ``UsageProblem``."""

    def named(self, target: str) -> AbstractContextManager[RunningTarget]:
        """A real server by its name, got if need be, once for each variant. Raises ``UsageProblem``."""

    def consumers(self, paths: Paths) -> list[Consumer]:
        """The terminal and the reports asked for. Raises ``UsageProblem`` if one cannot be written."""


EMBEDDED_AMQP = "amqp"  # in the place of a URL

EPILOG = """
Examples:

\b
  plumbline verify                                   the embedded reference broker for NATS
  plumbline verify amqp                              the one for AMQP
  plumbline verify nats://127.0.0.1:4222             any NATS server
  plumbline verify amqp://guest:guest@127.0.0.1/%2f  any AMQP 0-9-1 broker
  plumbline verify nats://user:password@host:4222 --select 'JS-PULL-*' --strict --html report.html
  plumbline verify --server /usr/sbin/nats-server    start that program, in every configuration needed
  plumbline verify --target nats-server@2.10.14      get that release first (plumbline targets)
  plumbline verify URL --write-waivers waivers.toml  draft the list of known failures from a run
  plumbline verify URL --trace my.trace              run a trace of your own
  plumbline verify URL --allure allure-results       then: allure generate allure-results
  plumbline verify URL -- -k pull -x                 what follows -- goes to pytest

\b
Exit codes: 0 conformant, 1 not conformant, 2 usage or configuration,
3 target unreachable or lost, 4 error of Plumbline itself.
"""


FOLLOWING = "plumbline.cli.verify.following"


class BeforePytest(TyperCommand):
    """Leaves alone what follows ``--``: it goes to pytest."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[FOLLOWING] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*super().collect_usage_pieces(ctx), "[-- PYTEST-ARGUMENT...]"]


def register(app: typer.Typer, services: Services) -> None:
    """Mount ``verify`` on ``app``."""

    @app.command(cls=BeforePytest, epilog=EPILOG)
    def verify(
        context: typer.Context,
        url: Annotated[
            str | None,
            typer.Argument(
                metavar="URL",
                help="nats://[user:password@|token@]host[:port], amqp://[user:password@]host[:port][/vhost]. "
                "Default: the embedded reference broker for NATS.",
            ),
        ] = None,
        server: Annotated[
            str | None,
            typer.Option(
                metavar="BINARY",
                help="Start this program (rabbitmq-server, or one that takes nats-server's -c FILE) "
                "instead of a URL.",
            ),
        ] = None,
        target: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Get and start a real server by its name, e.g. nats-server@2.10.14 (plumbline targets).",
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
        allure: Annotated[
            Path | None, typer.Option(metavar="DIR", help="Write results for Allure into this folder.")
        ] = None,
        sarif: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write what failed as SARIF.")
        ] = None,
        badge: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a badge as SVG.")] = None,
        requirement_url: Annotated[
            str,
            typer.Option(
                metavar="URL",
                help="Where requirements are published, for links in Allure and SARIF: "
                "https://.../requirements/{group}.html#{id} on a site of plumbline matrix.",
            ),
        ] = "",
        workers: Annotated[
            int | None,
            typer.Option(
                "--workers",
                "-n",
                metavar="N",
                min=0,
                help="Processes that run checks; 0: this one alone.",
            ),
        ] = None,
        defect: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="Give the embedded broker a deliberate fault (plumbline broker nats --list-defects).",
            ),
        ] = None,
    ) -> None:
        """Hold a server up against its protocol and say what became of every requirement."""
        wanted = Wanted(
            level=level,
            variants=tuple(variant or ()),
            select=tuple(select or ()),
            waivers=waivers,
            traces=tuple(path.resolve() for path in trace or ()),
            strict=strict,
        )
        asked = _Asked(
            wanted=wanted,
            url=url or "",
            server=server,
            target=target,
            defects=tuple(defect or ()),
            paths=Paths(json, junit, html, markdown, sarif, badge, allure, requirement_url),
            write_waivers=write_waivers,
            workers=workers,
            pytest_args=tuple(context.meta[FOLLOWING]),
        )
        raise typer.Exit(ending(lambda: _verify(services, asked)))


class _Asked(Struct, frozen=True):
    """The command line."""

    wanted: Wanted
    url: str  # "" if none was given
    server: str | None
    target: str | None
    defects: tuple[str, ...]
    paths: Paths
    write_waivers: Path | None
    workers: int | None
    pytest_args: tuple[str, ...]


def _verify(services: Services, asked: _Asked) -> ExitCode:
    finished = _run(services, asked)
    for sentence in finished.problems:
        ended(finished.exit_code, sentence)
    if finished.exit_code > ExitCode.USAGE and finished.result is not None:
        ended(finished.exit_code, finished.result.summary.reasons[0])
    return finished.exit_code


def _run(services: Services, asked: _Asked) -> Finished:
    consumers = services.consumers(asked.paths)
    if asked.write_waivers is not None:
        _require_new(asked.write_waivers)
    with _running(services, asked) as running, TemporaryDirectory(prefix="plumbline-") as shared:
        prepared = prepare(asked.wanted, running, Path(shared))
        finished = run_suite(prepared, consumers, workers=asked.workers, pytest_args=asked.pytest_args)
    if asked.write_waivers is not None and finished.result is not None:
        text = draft(finished.result.checks, finished.result.target.version)
        try:
            asked.write_waivers.write_text(text, "utf-8")
        except OSError as error:
            raise UsageProblem(f"--write-waivers {asked.write_waivers}: {error.strerror}") from None
    return finished


def _running(services: Services, asked: _Asked) -> AbstractContextManager[RunningTarget]:
    url, server, target = asked.url, asked.server, asked.target
    if sum(map(bool, (url, server, target))) > 1:
        raise UsageProblem("give a URL, --server or --target, one of them")
    embedded_amqp = url == EMBEDDED_AMQP
    if asked.defects and (url or server or target) and not embedded_amqp:
        raise UsageProblem(
            "--defect is for the embedded reference broker: leave out the URL, --server and --target"
        )
    if target:
        return services.named(target)
    if server:
        return services.started(server)
    if embedded_amqp:
        return services.embedded_amqp(asked.defects)
    if url:
        return nullcontext(RunningTarget(target_url(url)))
    return services.embedded(asked.wanted.level, asked.defects)


def _require_new(path: Path) -> None:
    """Before the run, not after it: that a draft can be written, and overwrites no reasons."""
    try:
        if path.exists() and path.stat().st_size:
            raise UsageProblem(
                f"--write-waivers {path}: the file exists, and may hold reasons; name a new one"
            )
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageProblem(f"--write-waivers {path}: {error.strerror}") from None
