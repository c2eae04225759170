"""``plumbline results``: results that others contribute to a published table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.contributed import Contribution, add, check_all
from plumbline.cli.exits import CommandGroup, exit_codes
from plumbline.cli.output import print_line
from plumbline.cli.requirements import all_requirements
from plumbline.errors import ExitCode
from plumbline.reports.files import usage_problem

EPILOG = """
A vendor adds the result of a run to the folder of a project and opens a pull request. The project's CI checks
the folder, and 'plumbline matrix --results' shows what is in it.

\b
Examples:

\b
  plumbline verify --target acme@1.2 --targets-file acme.toml --claims claims.toml --json result.json
  plumbline results add acme@1.2=result.json --claims claims.toml --key acme.pem --into results/
  plumbline results check results/
  plumbline matrix --results results/ -o site/

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "all is in order",
        ExitCode.NOT_CONFORMANT: "a contributed result is wrong",
    }
)

ADD_EPILOG = """
Examples:

\b
  plumbline results add acme@1.2=result.json --into results/                under a name of your choice
  plumbline results add result.json --claims claims.toml --key acme.pem     signed, with what you claim
"""

CHECK_EPILOG = """
Examples:

\b
  plumbline results check results/

\b
Exit codes: 0 all is in order, 1 a contributed result is wrong, 2 usage or configuration.
"""

app = command_app(
    cls=CommandGroup,
    name="results",
    help="Contribute results to a published table, and check them.",
    epilog=EPILOG,
    no_args_is_help=True,
)


@app.command("add", epilog=ADD_EPILOG)
def add_result(
    result: Annotated[
        str,
        typer.Argument(metavar="[NAME=]RESULT.json", help="The file that --json of a run has written."),
    ],
    into: Annotated[Path, typer.Option(metavar="DIR", help="The folder of contributed results.")] = Path(
        "results"
    ),
    claims: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The claims file that the run was compared with.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Sign with this Ed25519 key (PEM). Without it another tool has to sign.",
        ),
    ] = None,
) -> None:
    """Add the verdicts of a run, with an in-toto attestation."""
    try:
        print_line(str(add(result, into, claims, key, all_requirements())))
    except OSError as problem:
        raise usage_problem(problem) from None


@app.command("check", epilog=CHECK_EPILOG)
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of contributed results.")] = Path(
        "results"
    ),
) -> None:
    """Check schema, counts, claims and attestation of each result."""
    wrong = 0
    try:
        for one in check_all(folder, all_requirements()):
            if isinstance(one, Contribution):
                summary = one.run.result.summary
                print_line(f"{one.run.target}: {summary.passed} of {summary.claimed} passed; {one.text}")
            else:
                wrong += 1
                print_line(f"{one.folder}: WRONG: {one.reason}")
    except OSError as problem:
        raise usage_problem(problem) from None
    raise typer.Exit(ExitCode.NOT_CONFORMANT if wrong else ExitCode.CONFORMANT)
