"""``plumbline matrix``: a site of the runs of many targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.contributed import contributed
from plumbline.cli.exits import exit_codes
from plumbline.cli.options import output_option
from plumbline.cli.output import print_line, warn
from plumbline.cli.requirements import all_requirements
from plumbline.errors import ExitCode, PlumblineError, UsageProblem
from plumbline.reports.files import usage_problem
from plumbline.reports.matrix.batch import TargetRun, verify_all
from plumbline.reports.matrix.disputes import load_disputes
from plumbline.reports.matrix.runs import load, stored
from plumbline.reports.matrix.site import SiteOptions, build

EPILOG = """
The site has a matrix of all targets, a page for each run, and what changed since the run before. It keeps
the verdicts of each run, so the next matrix in the same folder continues the history.

\b
Examples:

\b
  plumbline matrix results/*.json -o site/            runs that you have
  plumbline matrix mine=result.json -o site/          the same, with a name of your choice
  plumbline matrix --run nats-server@2.9.10 --run nats-server --run rabbitmq -o site/
  plumbline matrix --run all -o site/                 every target that is installed or can be installed
  plumbline matrix -o site/                           the same site again, from the runs that it keeps

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "the site is written",
        ExitCode.TARGET_LOST: "with --run: a target could not be verified",
    },
    "The site has all the runs that ended.",
)

app = command_app()


@app.command("matrix", epilog=EPILOG)
def matrix(
    results: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=]RESULT.json", help="Files that --json of runs have written."),
    ] = None,
    output: Annotated[Path, output_option("DIR", "Write the site to this folder.")] = Path("site"),
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Verify this target first: a name that 'plumbline targets' lists, reference-nats, "
            "reference-amqp, or all. Repeatable.",
        ),
    ] = None,
    contributions: Annotated[
        Path | None,
        typer.Option(
            "--results", metavar="DIR", help="Add what others have contributed; see plumbline results --help."
        ),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the site.")] = SiteOptions().title,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the site will be, for the links of its Atom feed.")
    ] = "",
    dispute_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Where a reader disputes a requirement; {id} in it is replaced."),
    ] = "",
    disputes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The record of disputes (TOML), shown with each requirement."),
    ] = None,
) -> None:
    """Write a site that shows the runs of many targets."""
    try:
        wanted = _targets(run or [])
        runs = load(results or [])
        before = stored(output)
        if contributions:
            runs += contributed(contributions, all_requirements())
        record = load_disputes(disputes, all_requirements()) if disputes else {}
        if not (wanted or runs or before):
            raise UsageProblem("give result files, or targets with --run; see plumbline matrix --help")
        ended, code = verify_all(wanted, warn)
        runs += ended
        if code == ExitCode.INTERRUPTED and not runs:
            raise typer.Exit(code)
        page = build(runs, before, output, SiteOptions(title, url, dispute_url, record))
    except PlumblineError:  # ReportError is an OSError
        raise
    except OSError as problem:
        raise usage_problem(problem) from None
    print_line(str(page))
    raise typer.Exit(code)


def _targets(names: Sequence[str]) -> list[TargetRun]:
    """How each of these targets is verified. Raises ``TargetError`` for an unknown name."""
    from plumbline.servers import every

    return [TargetRun(name, arguments) for name, arguments in every.runs(names)]
