"""``plumbline explore``: flags in, exit code out. ``Services`` is how it reaches brokers and servers."""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from msgspec import Struct

from plumbline.cli.exits import ended, ending
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.runner.prepare import UsageProblem
from plumbline.conformance.runner.sweep import sweep
from plumbline.conformance.running import RunningTarget
from plumbline.conformance.target import AccessRefused, BadUrl, TargetAccess, Url, open_target
from plumbline.conformance.trace.durations import nanoseconds
from plumbline.interrupts import uninterrupted
from plumbline.verdicts import ExitCode

if TYPE_CHECKING:
    from plumbline.conformance.explore.reference import Reference

SEEDS = 1_000_000
DEFAULT_FOLDER = Path(".plumbline/explore")


class Services(Protocol):
    """What the command needs of the other packages."""

    def reference(self, level: str) -> Callable[[], Reference]:
        """Makes fresh reference brokers of that level. Raises ``UsageProblem``."""

    def embedded_alone(self, level: str, defects: Sequence[str]) -> AbstractContextManager[RunningTarget]:
        """The reference broker behind a socket. Raises ``UsageProblem``."""

    def started_alone(self, binary: str) -> AbstractContextManager[RunningTarget]:
        """A server binary with JetStream. Raises ``UsageProblem``."""


class _Asked(Struct, frozen=True):
    """The command line."""

    url: str | None
    server: str | None
    level: str | None
    defects: tuple[str, ...]
    seconds: float
    examples: int | None
    most: int | None
    seed: int
    folder: Path


EPILOG = """
Examples:

\b
  plumbline explore                                      the embedded reference broker, for a minute
  plumbline explore nats://127.0.0.1:4222 --budget 10m   any server
  plumbline explore --server /usr/sbin/nats-server       start that program
  plumbline explore URL --seed 17 -o traces              the same programs again; traces go there

\b
Exit codes: 0 no divergence, 1 divergences, 2 usage or configuration,
3 target unreachable or lost, 4 error of Plumbline itself.
"""


def register(app: typer.Typer, services: Services) -> None:
    """Mount ``explore`` on ``app``."""

    @app.command(epilog=EPILOG)
    def explore(
        url: Annotated[
            str | None,
            typer.Argument(
                metavar="URL",
                help="nats://[user:password@|token@]host[:port]. Default: the embedded reference broker.",
            ),
        ] = None,
        server: Annotated[
            str | None, typer.Option(metavar="BINARY", help="Start this program instead of a URL.")
        ] = None,
        budget: Annotated[
            str, typer.Option(metavar="TIME", help="How long to look for divergences: 60s, 10m.")
        ] = "60s",
        examples: Annotated[
            int | None, typer.Option(metavar="N", min=1, help="Stop after so many programs.")
        ] = None,
        most: Annotated[
            int | None, typer.Option(metavar="N", min=1, help="Stop after so many divergences.")
        ] = None,
        seed: Annotated[
            int | None, typer.Option(metavar="N", help="Decides which programs; printed at the end.")
        ] = None,
        output: Annotated[
            Path, typer.Option("--output", "-o", metavar="DIR", help="Where trace files go.")
        ] = DEFAULT_FOLDER,
        level: Annotated[
            str | None,
            typer.Option(
                metavar="VERSION", help="Protocol level, e.g. 2.9. Default: what the target reports."
            ),
        ] = None,
        defect: Annotated[
            list[str] | None,
            typer.Option(metavar="NAME", help="Give the embedded broker a deliberate fault."),
        ] = None,
    ) -> None:
        """Drive a server with random commands and compare it with the reference broker.

        What differs is shrunk to a trace file that anyone can replay: plumbline verify URL --trace FILE.
        """

        def command() -> ExitCode:
            asked = _Asked(
                url=url,
                server=server,
                level=level,
                defects=tuple(defect or ()),
                seconds=_seconds(budget),
                examples=examples,
                most=most,
                seed=random.randrange(SEEDS) if seed is None else seed,
                folder=output,
            )
            try:
                return _explore(services, asked)
            except (BadUrl, AccessRefused) as problem:
                raise UsageProblem(str(problem)) from None

        raise typer.Exit(ending(command))


def _explore(services: Services, asked: _Asked) -> ExitCode:
    from plumbline.conformance.explore.findings import Teller
    from plumbline.conformance.explore.search import Budget, Search
    from plumbline.conformance.explore.trial import Lost

    with ExitStack() as running:
        target = _target(services, asked, running)
        level = asked.level or ".".join(map(str, target.level[:2]))
        reference = services.reference(level)
        witness = _opened(running.enter_context(services.embedded_alone(level, ())))
        if "jetstream" not in target.target.features:
            raise UsageProblem(f"{target.url} does not claim JetStream: there is nothing to explore")
        teller = Teller(target, level, asked.folder, _replay(asked, target), out=sys.stdout, err=sys.stderr)
        search = Search(
            target,
            witness,
            reference,
            Budget(asked.seconds, asked.examples, asked.most),
            first_seed=asked.seed,
            tell=teller.progress,
            report=teller.found,
        )
        code = ExitCode.CONFORMANT
        try:
            search.run()
        except Lost as lost:
            code = ended(ExitCode.TARGET_LOST, f"the target was lost: {lost}")
        except KeyboardInterrupt:
            code = ended(ExitCode.INTERRUPTED, "interrupted")
        except OSError as error:
            raise UsageProblem(f"-o {asked.folder}: {error.strerror or error}") from None
        finally:
            with uninterrupted():
                _swept(target)
        teller.sum(search.progress, search.distinct(), asked.seed)
    if code is ExitCode.CONFORMANT and search.found:
        return ExitCode.NOT_CONFORMANT
    return code


def _target(services: Services, asked: _Asked, running: ExitStack) -> TargetAccess:
    if asked.url and asked.server:
        raise UsageProblem("give a URL or --server, one of the two")
    if asked.defects and (asked.url or asked.server):
        raise UsageProblem("--defect is for the embedded reference broker: leave out the URL and --server")
    if asked.url:
        return _opened(RunningTarget(Url.parse(asked.url)))
    if asked.server:
        return _opened(running.enter_context(services.started_alone(asked.server)))
    return _opened(running.enter_context(services.embedded_alone(asked.level or "newest", asked.defects)))


def _opened(running: RunningTarget) -> TargetAccess:
    return open_target(running, run=secrets.token_hex(3))


def _replay(asked: _Asked, target: TargetAccess) -> str:
    """What reaches the target again on a command line, without secrets."""
    if asked.url:
        return str(target.url)
    if asked.server:
        return f"--server {asked.server}"
    return " ".join(
        [f"--defect={name}" for name in asked.defects] + ([f"--level={asked.level}"] if asked.level else [])
    )


def _swept(target: TargetAccess) -> None:
    """Delete what an interrupted trial left."""
    try:
        sweep(target)
    except CheckEnded as refused:
        ended(ExitCode.TARGET_LOST, f"what exploration made could not be deleted: {refused.message}")


def _seconds(text: str) -> float:
    found = nanoseconds(text)
    if not found:
        raise UsageProblem(f"--budget {text!r}: write a time such as 60s or 10m")
    return found / 1e9
