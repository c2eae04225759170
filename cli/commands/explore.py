"""``plumbline explore``: random commands for a server, compared with the reference broker or with a model."""

from __future__ import annotations

import random
import secrets
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from plumbline.bounds import EXPLORE_ENDING_S, SWEEP_S
from plumbline.cli.access import with_access_options
from plumbline.cli.command import command_app
from plumbline.cli.embedded_brokers import EMBEDDED_AMQP, MAIN, configurations, virtual_brokers
from plumbline.cli.exits import exit_codes, exit_with
from plumbline.cli.options import (
    Defects,
    ProtocolLevel,
    Seed,
    ServerProgram,
    TargetName,
    TargetsFile,
    output_option,
    time_limit,
)
from plumbline.cli.passwords import PasswordFile, given_passwords
from plumbline.cli.start_target import AMQP, NATS, TargetChoice, choose_target
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.runner.sweep import sweep
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.errors import ExitCode, UsageProblem
from plumbline.interrupts import TimeIsUp, ended_after, uninterrupted

SEEDS = 1_000_000
MODEL_TRACES, MODEL_STEPS = 100, 25
DEFAULT_FOLDER = Path(".plumbline/explore")

EPILOG = """
Each difference is reduced to a short trace file. Anyone can replay it: plumbline verify URL --trace FILE.

\b
Examples:

\b
  plumbline explore                                      the embedded reference broker, for a minute
  plumbline explore nats://127.0.0.1:4222 --budget 10m   any NATS server with JetStream
  plumbline explore --server /usr/sbin/nats-server       start that program
  plumbline explore --target nats-server@2.10.14         install and start that release
  plumbline explore URL --seed 17 -o traces              the same programs again; write traces there
  plumbline explore --model jetstream-consumer URL       traces of a Quint model; needs quint (npm)
  plumbline explore --model amqp-queue --target rabbitmq@4.3 --examples 500

""" + exit_codes(
    {
        ExitCode.CONFORMANT: "no difference",
        ExitCode.NOT_CONFORMANT: "differences",
        ExitCode.TARGET_LOST: "target unreachable or lost, or it did not finish in time",
    }
)

app = command_app()


class ModelName(StrEnum):
    """The Quint models: see ``conformance.models``."""

    JETSTREAM_CONSUMER = "jetstream-consumer"
    AMQP_QUEUE = "amqp-queue"


class _Asked(Struct, frozen=True):
    """The command line."""

    choice: TargetChoice
    seconds: float
    examples: int | None
    most: int | None
    seed: int
    folder: Path
    model: ModelName | None


@app.command("explore", epilog=EPILOG)
@with_access_options
def explore(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="nats:// or tls://[user:password@|token@]host[:port]; with --model amqp-queue also amqp://. "
            "Default: the embedded broker.",
        ),
    ] = None,
    *,
    password_file: PasswordFile = None,
    access: Access,
    server: ServerProgram = None,
    target: TargetName = None,
    targets_file: TargetsFile = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time to search for differences, e.g. 60s or 10m.")
    ] = "60s",
    examples: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Stop after N random programs, or N traces of a model."),
    ] = None,
    most: Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after N differences.")] = None,
    seed: Seed = None,
    model: Annotated[
        ModelName | None,
        typer.Option(
            help="Play traces of this Quint model instead of random commands. The model says what to expect."
        ),
    ] = None,
    output: Annotated[Path, output_option("DIR", "Write trace files to this folder.")] = DEFAULT_FOLDER,
    level: ProtocolLevel = None,
    defect: Defects = None,
) -> None:
    """Compare a server with the reference broker by random commands."""

    asked = _Asked(
        choice=TargetChoice(
            url or "",
            server,
            target,
            level,
            tuple(defect or ()),
            given_passwords(url, password_file).url,
            access,
            targets_file=targets_file,
        ),
        seconds=time_limit(budget, "--budget"),
        examples=examples,
        most=most,
        seed=random.randrange(SEEDS) if seed is None else seed,
        folder=output,
        model=model,
    )
    raise typer.Exit(_explore(asked) if model is None else _explore_model(asked, model))


def _explore(options: _Asked) -> ExitCode:
    from plumbline.conformance.explore.findings import FindingsPrinter
    from plumbline.conformance.explore.search import Budget, Search
    from plumbline.conformance.explore.trial import TargetLostError

    plain = {MAIN: configurations()[MAIN]}
    with ExitStack() as stack:
        running = stack.enter_context(choose_target(options.choice, plain, [NATS]))
        target = _opened(running)
        level = options.choice.level or ".".join(map(str, target.level[:2]))
        reference = virtual_brokers(level)
        embedded = stack.enter_context(choose_target(TargetChoice(level=level), plain))
        witness = _opened(embedded)
        if "jetstream" not in target.target.features:
            raise UsageProblem(f"{target.url} does not offer JetStream, and explore compares JetStream only")
        replay = _replay(running, target)
        teller = FindingsPrinter(target, level, options.folder, replay, out=sys.stdout, err=sys.stderr)
        search = Search(
            target,
            witness,
            reference,
            Budget(options.seconds, options.examples, options.most),
            first_seed=options.seed,
            on_progress=teller.progress,
            report=teller.print_divergence,
        )
        code = ExitCode.CONFORMANT
        try:
            code = _run_to_its_end(options, target, search.run)
        except TargetLostError as lost:
            code = exit_with(ExitCode.TARGET_LOST, f"the target was lost: {lost}")
        teller.print_summary(search.progress, search.distinct(), options.seed)
    if code is ExitCode.CONFORMANT and search.divergences:
        return ExitCode.NOT_CONFORMANT
    return code


def _explore_model(options: _Asked, name: ModelName) -> ExitCode:
    from plumbline.conformance.models import quint
    from plumbline.conformance.models.catalogue import MODELS
    from plumbline.conformance.models.findings import ModelPrinter
    from plumbline.conformance.models.search import ModelSearch
    from plumbline.conformance.requirements.catalogue import Catalogue
    from plumbline.servers.npm import npm_program

    model, program = MODELS[name], npm_program("quint")
    if program is None:
        raise UsageProblem(
            "--model needs the program quint: in a checkout, make servers installs it; "
            "see 'Traces of a model' in docs/how-to/explore.md"
        )
    choice = options.choice
    if model.protocol == AMQP and not (choice.url or choice.server or choice.target):
        choice = replace(choice, url=EMBEDDED_AMQP)
    with ExitStack() as stack:
        running = stack.enter_context(choose_target(choice, {MAIN: configurations()[MAIN]}, [model.protocol]))
        target = _opened(running)
        printer = ModelPrinter(
            model, target, options.folder, _replay(running, target), out=sys.stdout, err=sys.stderr
        )
        search = ModelSearch(
            model,
            target,
            Catalogue.load(),
            seconds=options.seconds,
            most=options.most,
            on_progress=printer.progress,
            report=printer.print_difference,
        )
        count = options.examples or MODEL_TRACES
        traces = quint.traces(program, model, count, seed=options.seed, steps=MODEL_STEPS)
        code = _run_to_its_end(options, target, lambda: search.run(traces))
        printer.print_summary(search.progress, len(search.differences), options.seed)
    if code is ExitCode.CONFORMANT and search.differences:
        return ExitCode.NOT_CONFORMANT
    return code


def _run_to_its_end(options: _Asked, target: TargetAccess, run: Callable[[], None]) -> ExitCode:
    """Run within the budget, and delete what is left on the target."""
    try:
        with ended_after(options.seconds + EXPLORE_ENDING_S):
            run()
    except TimeIsUp:
        return _out_of_time()
    except KeyboardInterrupt:
        return exit_with(ExitCode.INTERRUPTED, "interrupted")
    except OSError as error:
        raise UsageProblem(f"-o {options.folder}: {error.strerror or error}") from None
    finally:
        with uninterrupted():
            _swept(target, time.monotonic() + SWEEP_S)
    return ExitCode.CONFORMANT


def _replay(running: RunningTarget, target: TargetAccess) -> str:
    """How ``plumbline verify`` names that target."""
    if running.arguments is None:
        return shlex.join((str(target.url), *target.url.flags))
    return " ".join(running.arguments)


def _opened(running: RunningTarget) -> TargetAccess:
    return open_target(running, run=secrets.token_hex(3))


def _out_of_time() -> ExitCode:
    """The target took so long that what was begun within the budget is not finished: no verdict."""
    return exit_with(
        ExitCode.TARGET_LOST,
        f"the target did not finish the last program within {EXPLORE_ENDING_S:g} s after --budget",
    )


def _swept(target: TargetAccess, until: float) -> None:
    """Delete what an interrupted trial left, until that monotonic time."""
    try:
        sweep(target, until)
    except CheckEnded as refused:
        exit_with(
            ExitCode.TARGET_LOST, f"the objects of this exploration could not be deleted: {refused.message}"
        )
