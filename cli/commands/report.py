"""``plumbline report``: reports of a run that is over, and comparisons of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import with_report_options
from plumbline.cli.output import print_line
from plumbline.cli.reporting import capture
from plumbline.errors import ExitCode, PlumblineError
from plumbline.reports import ReportOptions, ReportWriter, open_reports
from plumbline.reports.events import events_of
from plumbline.reports.files import usage_problem
from plumbline.reports.matrix.compare import as_lines, compare
from plumbline.reports.result_json import read
from plumbline.reports.terminal.live import TerminalReport

EPILOG = """
Examples:

\b
  plumbline report result.json --html report.html --junit report.xml
  plumbline report result.json --allure allure-results --requirement-url 'https://.../{group}.html#{id}'
  plumbline report new.json --against old.json        newly failing, newly passing, changed waivers

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "the reports are written",
        ExitCode.NOT_CONFORMANT: "with --against: a requirement is newly failing",
    }
)

app = command_app()


@app.command("report", epilog=EPILOG)
@with_report_options
def report(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT.json", help="The file that --json of a run has written.")
    ],
    *,
    reports: ReportOptions,
    against: Annotated[
        Path | None, typer.Option(metavar="RESULT.json", help="Compare with this earlier run.")
    ] = None,
) -> None:
    """Write reports of an earlier run, or compare two runs."""
    try:
        found = read(result)
        earlier = read(against) if against else None
        consumers: list[ReportWriter] = open_reports(
            reports.paths, requirement_url=reports.requirement_url, capture=capture
        )
        if not consumers and earlier is None:
            consumers = [TerminalReport()]
        for consumer in consumers:
            for event in events_of(found):
                consumer.on_event(event)
    except PlumblineError:  # ReportError is an OSError
        raise
    except OSError as problem:
        raise usage_problem(problem) from None
    if earlier is not None:
        comparison = compare(earlier, found)
        for line in as_lines(comparison):
            print_line(line)
        raise typer.Exit(ExitCode.NOT_CONFORMANT if comparison.newly_failing else ExitCode.CONFORMANT)
