"""``plumbline report`` and ``plumbline matrix``: what can be made of results once the runs are over.

Which targets there are, and what makes captures, is handed in by ``cli/main.py``: this package knows
verdicts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from plumbline.reports import Capture, Consumer, ReportError, open_reports
from plumbline.reports.matrix.batch import Wanted, run_all
from plumbline.reports.matrix.compare import Change, Comparison, compare
from plumbline.reports.matrix.runs import Run, load, stored
from plumbline.reports.matrix.site import build
from plumbline.reports.result_json import ResultError, read
from plumbline.reports.terminal.live import Terminal
from plumbline.reports.text import one_line
from plumbline.verdicts import CheckFinished, CheckStarted, ExitCode, RunFinished, RunResult, RunStarted

MATRIX_EPILOG = """
Examples:

\b
  plumbline matrix results/*.json -o site/            runs that you have
  plumbline matrix mine=result.json -o site/          under a name of yours
  plumbline matrix --run nats-server@2.9.10 --run nats-server --run rabbitmq -o site/
  plumbline matrix --run all -o site/                 every target of 'plumbline targets' that can be had
  plumbline matrix -o site/                           the same site again, from the runs that it keeps

\b
A site keeps the verdicts of each run beside its pages: the next matrix in the same folder has a history.
Exit codes: 0 the site is written, 2 usage; with --run that of a run that gave no result (3, 4), or 130 when
interrupted: the site then has the runs that had ended.
"""

REPORT_EPILOG = """
Examples:

\b
  plumbline report result.json --html report.html --junit report.xml
  plumbline report result.json --allure allure-results --requirement-url 'https://.../{group}.html#{id}'
  plumbline report new.json --against old.json        newly failing, newly passing, changed waivers

\b
Exit codes: 0, or with --against 1 if something fails that did not; 2 usage.
"""


# How each of these targets is verified; ``all`` means every one. Raises ``ReportError`` for an unknown name.
Targets = Callable[[Sequence[str]], list[Wanted]]
Interrupts = Callable[[], AbstractContextManager[None]]


def register(
    app: typer.Typer, targets: Targets, capture: Capture | None = None, interrupts: Interrupts = nullcontext
) -> None:
    """Mount both commands on ``app``. Without ``capture`` Allure gets no capture files. Within
    ``interrupts``, whatever ends a run raises ``KeyboardInterrupt``."""

    @app.command(epilog=MATRIX_EPILOG)
    def matrix(
        results: Annotated[
            list[str] | None,
            typer.Argument(metavar="[NAME=]RESULT.json", help="What --json of a run wrote."),
        ] = None,
        output: Annotated[
            Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the site is, or will be.")
        ] = Path("site"),
        run: Annotated[
            list[str] | None,
            typer.Option(
                metavar="TARGET",
                help="Verify this target first: a name of 'plumbline targets', reference-nats, "
                "reference-amqp, or all. May be repeated.",
            ),
        ] = None,
        title: Annotated[str, typer.Option(help="The heading of the site.")] = "Conformance matrix",
    ) -> None:
        """Put runs of many targets on a site: a matrix, each run behind it, what changed and since when."""
        try:
            wanted = targets(run or [])
            runs = load(results or [])
            before = stored(output)
            if not (wanted or runs or before):
                raise ReportError("name results, or targets with --run; plumbline matrix --help shows how")
            ended, code = _verified(wanted, interrupts)
            runs += ended
            if code == ExitCode.INTERRUPTED and not runs:
                raise typer.Exit(code)
            page = build(runs, before, output, title=title)
        except (ResultError, OSError) as problem:
            raise _usage(problem) from None
        typer.echo(str(page))
        raise typer.Exit(code)

    @app.command(epilog=REPORT_EPILOG)
    def report(
        result: Annotated[Path, typer.Argument(metavar="RESULT.json", help="What --json of a run wrote.")],
        json: Annotated[Path | None, typer.Option(metavar="FILE", help="The JSON result again.")] = None,
        junit: Annotated[Path | None, typer.Option(metavar="FILE", help="JUnit XML.")] = None,
        html: Annotated[Path | None, typer.Option(metavar="FILE", help="One HTML page.")] = None,
        markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="A summary for CI.")] = None,
        allure: Annotated[Path | None, typer.Option(metavar="DIR", help="Results for Allure.")] = None,
        sarif: Annotated[Path | None, typer.Option(metavar="FILE", help="What failed, as SARIF.")] = None,
        badge: Annotated[Path | None, typer.Option(metavar="FILE", help="A badge as SVG.")] = None,
        requirement_url: Annotated[
            str,
            typer.Option(
                metavar="URL",
                help="Where requirements are published, for links in Allure and SARIF, with {group} and {id} "
                "in it.",
            ),
        ] = "",
        against: Annotated[
            Path | None, typer.Option(metavar="RESULT.json", help="An earlier run to compare with.")
        ] = None,
    ) -> None:
        """Make reports of a run that is over, or compare it with an earlier one."""
        try:
            found = read(result)
            earlier = read(against) if against else None
            files = open_reports(
                json=json,
                junit=junit,
                html=html,
                markdown=markdown,
                allure=allure,
                sarif=sarif,
                badge=badge,
                requirement_url=requirement_url,
                capture=capture,
            )
            _replay(found, [*files, *([Terminal()] if not (files or earlier) else [])])
        except (ResultError, OSError) as problem:
            raise _usage(problem) from None
        if earlier is not None:
            raise typer.Exit(_tell(compare(earlier, found)))


def _verified(wanted: Iterable[Wanted], interrupts: Interrupts) -> tuple[list[Run], int]:
    """The runs, and the exit code. An interrupted batch, perhaps of an hour, gives what had ended."""
    runs: list[Run] = []
    code: int = ExitCode.CONFORMANT
    try:
        with interrupts():
            for one in run_all(wanted, lambda said: typer.echo(f"plumbline: {said}", err=True)):
                if isinstance(one, Run):
                    runs.append(one)
                else:
                    code = max(code, one.exit_code)
    except KeyboardInterrupt:
        typer.echo(f"plumbline: interrupted; {len(runs)} targets were verified", err=True)
        code = ExitCode.INTERRUPTED
    return runs, code


def _usage(problem: Exception) -> typer.Exit:
    said = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
    place = f"{problem.filename}: " if isinstance(problem, OSError) and problem.filename else ""
    typer.echo(f"plumbline: {place}{said}", err=True)
    return typer.Exit(ExitCode.USAGE)


def _replay(result: RunResult, consumers: Iterable[Consumer]) -> None:
    """The events of the run, as they would come now."""
    for consumer in consumers:
        consumer.consume(RunStarted(result.suite, result.target, len(result.checks)))
        for check in result.checks:
            consumer.consume(CheckStarted(check.id, check.title))
            consumer.consume(CheckFinished(check))
        consumer.consume(RunFinished(result))


def _tell(found: Comparison) -> ExitCode:
    """The differences, as lines."""
    for heading, changes in (
        ("newly failing", found.newly_failing),
        ("newly passing", found.newly_passing),
        ("changed waivers", found.waivers),
        ("otherwise changed", found.other),
    ):
        if changes:
            typer.echo(f"{heading}: {len(changes)}")
            for change in changes:
                typer.echo(f"  {_line(change)}")
    if found.same:
        typer.echo("no requirement has another verdict")
    return ExitCode.NOT_CONFORMANT if found.newly_failing else ExitCode.CONFORMANT


def _line(change: Change) -> str:
    why = f": {one_line(change.why)[:200]}" if change.why else ""
    return f"{change.requirement.id:<16} {change.requirement.level:<6} {change.before} -> {change.after}{why}"
