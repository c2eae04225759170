"""``plumbline verify``: the conformance suite, run against a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec import Struct

from plumbline.bounds import MAX_TIME_S
from plumbline.cli.access import with_access_options
from plumbline.cli.command import PytestPassThrough, after_dashes, command_app, started_at
from plumbline.cli.embedded_brokers import configurations
from plumbline.cli.exits import exit_codes, exit_with
from plumbline.cli.options import (
    Defects,
    MaxTime,
    ProtocolLevel,
    Select,
    ServerProgram,
    Strict,
    TargetName,
    TargetsFile,
    Waivers,
    with_report_options,
)
from plumbline.cli.options import (
    max_time as read_max_time,
)
from plumbline.cli.passwords import PasswordFile, given_passwords
from plumbline.cli.reporting import consumers
from plumbline.cli.start_target import TargetChoice, choose_target
from plumbline.conformance.claims import draft_claims
from plumbline.conformance.dimensions import Dimensions
from plumbline.conformance.runner.prepare import RunOptions, prepare
from plumbline.conformance.runner.time_limit import TimeLimit
from plumbline.conformance.runner.verify import Finished, run_suite
from plumbline.conformance.targets.access import Access
from plumbline.conformance.waivers import draft_waivers
from plumbline.errors import ExitCode, UsageProblem
from plumbline.reports import ReportOptions

EPILOG = """
Examples:

\b
  plumbline verify                                   the embedded reference broker for NATS
  plumbline verify amqp                              the embedded reference broker for AMQP
  plumbline verify nats://127.0.0.1:4222             any NATS server
  plumbline verify amqp://guest:guest@127.0.0.1/%2f  any AMQP 0-9-1 broker
  plumbline verify nats://user@host:4222 --password-file FILE --select 'JS-PULL-*' --strict --html report.html
  plumbline verify tls://host:4222 --tls-ca ca.pem   TLS, with a certificate authority of your own
  plumbline verify --server /usr/sbin/nats-server    start that program, in every configuration needed
  plumbline verify --target nats-server@2.10.14      install and start that release
  plumbline verify --target nats-server@2.15x3       a cluster of three nodes of it
  plumbline verify --targets-file my.toml --target myserver  start a server of your own
  plumbline verify URL --write-waivers waivers.toml  draft a list of known failures from a run
  plumbline verify URL --write-claims claims.toml    draft a list of what the server announces
  plumbline verify URL --trace my.trace              run a trace of your own
  plumbline verify URL --allure allure-results       then: allure generate allure-results
  plumbline verify URL -- -k pull -x                 pass arguments to pytest

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "conformant",
        ExitCode.NOT_CONFORMANT: "not conformant",
        ExitCode.TARGET_LOST: "target unreachable or lost, or the time limit was reached",
    }
)

app = command_app()


@app.command("verify", cls=PytestPassThrough, epilog=EPILOG)
@with_report_options
@with_access_options
def verify(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="nats://[user:password@|token@]host[:port], amqp://[user:password@]host[:port][/vhost], "
            "with TLS tls:// and amqps://, over WebSocket ws:// and wss://, or amqp. Of several, with commas "
            "between them, the first that answers. Default: the embedded reference broker for NATS.",
        ),
    ] = None,
    *,
    password_file: PasswordFile = None,
    access: Access,
    server: ServerProgram = None,
    target: TargetName = None,
    targets_file: TargetsFile = None,
    select: Select = None,
    strict: Strict = False,
    level: ProtocolLevel = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL",
            help="URL of the same server software with another configuration. 'plumbline variants' lists "
            "the names. Repeatable.",
        ),
    ] = None,
    waivers: Waivers = None,
    claims: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with what the vendor claims in this TOML file. No such file is read unasked. Its "
            "restart command is run.",
        ),
    ] = None,
    write_claims: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a draft of a claims file from what the server announces."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Where NATS streams are stored: file or memory. Default: memory."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", help="Replicas of NATS streams, in a cluster. Default: 1."),
    ] = None,
    queue_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="Type of AMQP queues: quorum or classic. Default: what the broker does."
        ),
    ] = None,
    write_waivers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a draft of a waiver file from the failures of this run."),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Run this trace of your own; without --select only this. Repeatable."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-n",
            metavar="N",
            min=0,
            help="Number of worker processes. 0: run the checks in this process.",
        ),
    ] = None,
    max_time: MaxTime = None,
    defect: Defects = None,
    reports: ReportOptions,
) -> None:
    """Verify a server and report a verdict per requirement."""
    passwords = given_passwords(url, password_file)
    wanted = RunOptions(
        level=level,
        variants=tuple(variant or ()),
        passwords=passwords,
        access=access,
        select=tuple(select or ()),
        waivers=waivers,
        claims=claims,
        dimensions=Dimensions(storage or "", replicas or 0, queue_type or ""),
        traces=tuple(path.resolve() for path in trace or ()),
        strict=strict,
    )
    asked = _Asked(
        wanted=wanted,
        choice=TargetChoice(
            url or "",
            server,
            target,
            level,
            tuple(defect or ()),
            passwords.url,
            access,
            targets_file=targets_file,
        ),
        reports=reports,
        write_waivers=write_waivers,
        write_claims=write_claims,
        workers=workers,
        max_time_s=read_max_time(max_time),
        started_at=started_at(context),
        pytest_args=after_dashes(context),
    )
    raise typer.Exit(_verify(asked))


class _Asked(Struct, frozen=True):
    """The command line."""

    wanted: RunOptions
    choice: TargetChoice
    reports: ReportOptions
    write_waivers: Path | None
    write_claims: Path | None
    workers: int | None
    max_time_s: float | None
    started_at: float  # a monotonic time
    pytest_args: tuple[str, ...]


def _verify(asked: _Asked) -> ExitCode:
    finished = _run(asked)
    for sentence in finished.problems:
        exit_with(finished.exit_code, sentence)
    if finished.exit_code > ExitCode.USAGE and finished.result is not None:
        exit_with(finished.exit_code, finished.result.summary.reasons[0])
    return finished.exit_code


def _run(asked: _Asked) -> Finished:
    reports = consumers(asked.reports)
    with (
        _new_file("--write-waivers", asked.write_waivers, "reasons"),
        _new_file("--write-claims", asked.write_claims, "claims"),
        choose_target(asked.choice, configurations()) as running,
        TemporaryDirectory(prefix="plumbline-") as shared,
    ):
        prepared = prepare(asked.wanted, running, Path(shared))
        if asked.write_claims is not None:
            _write("--write-claims", asked.write_claims, draft_claims(prepared.run.target.announcement))
        finished = run_suite(
            prepared,
            reports,
            workers=asked.workers,
            pytest_args=asked.pytest_args,
            limit=TimeLimit(
                asked.max_time_s or MAX_TIME_S * (1 + prepared.run.target.slack_s), asked.started_at
            ),
        )
        if asked.write_waivers is not None and finished.result is not None:
            text = draft_waivers(finished.result.checks, finished.result.target.version)
            _write("--write-waivers", asked.write_waivers, text)
        return finished


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageProblem(f"{option} {path}: {error.strerror}") from None


@contextmanager
def _new_file(option: str, path: Path | None, contents: str) -> Iterator[None]:
    """Before the run, not after it: that a draft can be written, and overwrites nothing. A file that was not
    there and is still empty at the end is removed."""
    if path is None:
        yield
        return
    try:
        if path.exists() and path.stat().st_size:
            raise UsageProblem(
                f"{option} {path}: the file already exists and may contain {contents}; choose a new file name"
            )
        is_new = not path.exists()
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageProblem(f"{option} {path}: {error.strerror}") from None
    try:
        yield
    finally:
        if is_new and path.is_file() and not path.stat().st_size:
            path.unlink()
