"""``make adequacy``: mutants by rule of the reference cores, and which of them the suite kills.

Each mutant has one small error, made by a rule and not by hand. The checks that reach it run in one process,
on a clock that waiting moves, until one fails. A mutant that no check kills is a missing requirement, a weak
check, dead code, or equivalent: then it is in equivalents.toml, with the reason.

Results are kept in .plumbline/adequacy. A run goes on where the last one ended; Ctrl-C ends it at any time.
Exit code 1 if an entry of equivalents.toml is wrong, or the score is below --at-least.

    python -m tests.adequacy [PATTERN ...]

PATTERN names modules, functions or mutants: 'amqp.messages.*', 'Queue.put_back', 'a7130d8bf696'.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Self

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from plumbline.conformance.suite import all_checks, select
from plumbline.errors import ExitCode
from tests.adequacy.mutants import Candidate, Mutant, mutants_of
from tests.adequacy.reach import RUNS, Reach, load, measure
from tests.adequacy.results import (
    EQUIVALENTS,
    Equivalent,
    Result,
    ResultsFile,
    Status,
    equivalents,
    score,
    survivors,
    survivors_by_id,
)
from tests.adequacy.running import Runner, Selection, in_other_process
from tests.adequacy.sources import (
    PROTOCOLS,
    ROOT,
    fingerprint,
    import_all,
    modules,
    program_fingerprint,
    sources,
    users_of_names,
)

FOLDER = ROOT / ".plumbline" / "adequacy"
PLAIN_EVERY = 200  # mutants, between two lines where nothing may move; one more is of the first mutant


class Options(Struct):
    """The command line."""

    patterns: list[str]
    protocol: list[str]
    sample: int | None
    seed: int
    jobs: int
    only_survivors: bool
    again: bool
    listed: Status | None
    folder: Path
    at_least: float
    most_checks: int | None
    select: list[str]
    equivalents: Path


def main() -> int:
    """Run, print."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160)
    current = fingerprint()
    results = ResultsFile(options.folder / "results.jsonl")
    mutants: list[Mutant] = []
    chosen: set[str] = set()
    code = ExitCode.CONFORMANT
    try:
        for protocol in options.protocol:
            core = _Core(protocol, options, results, current, console)
            mutants += core.mutants
            chosen |= core.chosen
            core.run()
    except KeyboardInterrupt:
        console.print("interrupted; run it again to go on")
        code = ExitCode.INTERRUPTED
    done = [result for name in chosen if (result := results.current(name, current)) is not None]
    if options.listed is not None:
        _list(mutants, done, options.listed)
        return code
    console.print(_table(done))
    total = score(done)
    console.print(
        f"{total.killed} of {total.mutants - total.equivalent} mutants killed ({total.percent:.1f} %), "
        f"{total.survived} survived, {total.unreached} not reached; {total.equivalent} equivalent"
        + (f"; {len(chosen) - len(done)} not run" if len(done) < len(chosen) else "")
    )
    listed = survivors_by_id(survivors())
    known = sum(result.status in _OPEN and result.id in listed for result in done)
    if total.survived + total.unreached:
        console.print(
            f"the lists of survivors have the reason for {known} of the {total.survived + total.unreached} "
            "that no check kills"
        )
    for line in _killed_survivors(listed, done):
        console.print(line)
    wrong = [] if code else _wrong_entries(equivalents(options.equivalents).values(), mutants, done)
    for line in wrong:
        console.print(line, style="red")
    if code is ExitCode.CONFORMANT and (wrong or total.percent < options.at_least):
        return ExitCode.NOT_CONFORMANT
    return code


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="make adequacy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, default=[], help="only this core")
    parser.add_argument("--sample", type=int, metavar="N", help="of each core, N mutants by chance")
    parser.add_argument(
        "--seed", type=int, default=1, help="of --sample; the same one gives the same mutants"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--only-survivors", action="store_true", help="those that no check killed last time")
    parser.add_argument("--again", action="store_true", help="run also what was run with the same sources")
    parser.add_argument(
        "--list", dest="listed", type=Status, metavar="STATUS", help="name them: survived, 'not reached', ..."
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are kept")
    parser.add_argument(
        "--at-least", type=float, default=0.0, metavar="PERCENT", help="exit 1 below this score"
    )
    parser.add_argument("--most-checks", type=int, metavar="N", help="for each mutant, for a quick look")
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these checks, as for plumbline verify; such results are kept apart",
    )
    parser.add_argument("--equivalents", type=Path, default=EQUIVALENTS, metavar="FILE", help="another list")
    options = Options(**vars(parser.parse_args()))
    options.protocol = options.protocol or list(PROTOCOLS)
    if options.select:
        options.folder /= f"select-{zlib.crc32(' '.join(sorted(options.select)).encode()):08x}"
    return options


class _Core:
    """The mutants of one core."""

    def __init__(
        self, protocol: str, options: Options, results: ResultsFile, current: str, console: Console
    ) -> None:
        self._protocol = protocol
        self._options = options
        self._results = results
        self._fingerprint = current
        self._console = console
        self._equivalents = equivalents(options.equivalents)
        checks = all_checks()
        self._checks = [each for each in select(checks, options.select) if each.protocol == protocol]
        self._reach = self._measured()
        # Another process imports the core to find the mutants: some can only run where it is not imported.
        self._candidates = self._found()
        self.mutants = [candidate.mutant for candidate in self._candidates]
        self._chosen = [each for each in self._candidates if self._is_chosen(each.mutant)]
        if options.sample is not None and options.sample < len(self._chosen):
            self._chosen = Random(options.seed).sample(self._chosen, options.sample)
        self.chosen = {each.mutant.id for each in self._chosen}

    def run(self) -> None:
        """Run what has no result yet."""
        waiting = [each for each in self._chosen if self._is_due(each.mutant)]
        if not waiting or self._options.listed is not None:
            return
        users = users_of_names(self._protocol)
        killers = [
            (result.module, result.function, result.killer)
            for result in self._results.by_id.values()
            if result.killer in self._reach.checks
        ]
        selection = Selection(self._reach, self._checks, killers, self._options.most_checks)
        runner = Runner(self._protocol, self._reach, self._fingerprint, self._options.jobs)
        importing = [each for each in waiting if selection.needs_import(each)]
        replacing = [each for each in waiting if not selection.needs_import(each)]
        with _Shown(self._console, f"mutants of {self._protocol}", len(waiting)) as progress:
            for candidates in (importing, replacing):
                if candidates is replacing and replacing:
                    import_all(self._protocol)
                    runner.use_imported()
                for result in runner.run(selection.job(each, users) for each in candidates):
                    self._keep(result)
                    if result.killer:
                        selection.note(result.module, result.function, result.killer)
                    progress.advance(result)

    def _keep(self, result: Result) -> None:
        if result.status is not Status.KILLED and result.id in self._equivalents:
            result = msgspec.structs.replace(result, status=Status.EQUIVALENT)
        self._results.add(result)

    def _is_chosen(self, mutant: Mutant) -> bool:
        names = (mutant.module, mutant.function, mutant.id, f"{mutant.module}.{mutant.function}")
        if not _matches(names, self._options.patterns):
            return False
        last = self._results.by_id.get(mutant.id)
        return not self._options.only_survivors or last is None or last.status in _NOT_KILLED

    def _is_due(self, mutant: Mutant) -> bool:
        last = self._results.current(mutant.id, self._fingerprint)
        if last is not None and last.status in _NOT_KILLED:
            listed = mutant.id in self._equivalents
            if listed != (last.status is Status.EQUIVALENT):  # the list has changed, not the sources
                status = Status.EQUIVALENT if listed else Status.SURVIVED
                self._results.add(msgspec.structs.replace(last, status=status))
        is_cut_short = last is not None and last.status is Status.SURVIVED and last.checks < last.reaching
        return last is None or self._options.again or (is_cut_short and self._options.most_checks is None)

    def _measured(self) -> Reach:
        path = self._options.folder / f"reach-{self._protocol}.json"
        reach = load(path, self._fingerprint)
        if reach is None:
            what = f"which check reaches what of {self._protocol}"
            with _Shown(self._console, what, len(self._checks) * RUNS) as progress:
                in_other_process(
                    lambda done: path.write_bytes(
                        msgspec.json.encode(measure(self._protocol, self._checks, self._fingerprint, done))
                    ),
                    path.parent,
                    progress.advance,
                )
            reach = load(path, self._fingerprint)
            assert reach is not None
        for name, why in reach.unusable.items():
            self._console.print(f"not used: {name}: {why[:120]}", style="dim", soft_wrap=True)
        return reach

    def _found(self) -> list[Candidate]:
        path = self._options.folder / f"mutants-{self._protocol}.pickle"
        key = f"{self._fingerprint} {program_fingerprint()}"
        found = _unpickled(path, key)
        if found is None:
            count = len(modules(self._protocol))
            with _Shown(self._console, f"what can be mutated in {self._protocol}", count) as progress:
                in_other_process(
                    lambda done: _pickle(path, key, self._protocol, done), path.parent, progress.advance
                )
            found = _unpickled(path, key)
            assert found is not None
        return found


_OPEN = (Status.SURVIVED, Status.UNREACHED)
_NOT_KILLED = (*_OPEN, Status.EQUIVALENT)


def _pickle(path: Path, key: str, protocol: str, done: Callable[[], None]) -> None:
    found = []
    for source in sources(protocol):
        found += mutants_of(source)
        done()
    path.write_bytes(pickle.dumps((key, found)))


def _unpickled(path: Path, key: str) -> list[Candidate] | None:
    """What this program has written there, if it was for the same sources."""
    if not path.exists():
        return None
    written, found = pickle.loads(path.read_bytes())
    return found if written == key else None


def _matches(names: tuple[str, ...], patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


class _Shown:
    """How far it is: a bar, or a line now and then where nothing may move."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._done = 0
        self._counts: Counter[str] = Counter()
        # Drawn by hand: a thread of its own would be lost in every forked process.
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total, counts="")
        self._drawn_at = 0.0

    def advance(self, result: Result | None = None) -> None:
        self._done += 1
        if result is not None:
            self._counts[result.status] += 1
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items()))
        self._bar.update(self._task, advance=1, counts=counts)
        if self._console.is_terminal and time.monotonic() > self._drawn_at + 0.1:
            self._drawn_at = time.monotonic()
            self._bar.refresh()
        if not self._console.is_terminal and (self._done == 1 or self._done % PLAIN_EVERY == 0):
            self._console.print(f"{self._what}: {self._done} of {self._total} {counts}", soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()


def _list(mutants: list[Mutant], results: list[Result], status: Status) -> None:
    by_id = {mutant.id: mutant for mutant in mutants}
    for result in sorted(results, key=lambda each: (each.module, by_id[each.id].line)):
        if result.status is status:
            print(by_id[result.id])
            for line in result.noticed:
                print(f"    {line}")
            if result.killer:
                print(f"    {result.how}: {result.killer}: {result.evidence}")


def _table(results: list[Result]) -> Table:
    table = Table("module", "mutants", "killed", "survived", "not reached", "equivalent", "score")
    for number in range(1, 6):
        table.columns[number].justify = "right"
    modules: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        modules[result.module].append(result)
    rows = [(name, modules[name]) for name in sorted(modules)]
    for protocol in PROTOCOLS:
        of_core = [each for each in results if each.module.startswith(f"{protocol}.")]
        rows += [(f"all of {protocol}", of_core)]
    for name, found in rows:
        if found:
            of = score(found)
            counts = (of.mutants, of.killed, of.survived, of.unreached, of.equivalent)
            table.add_row(name, *map(str, counts), f"{of.percent:.1f} %")
    return table


def _killed_survivors(listed: Mapping[str, str], results: list[Result]) -> list[str]:
    """Entries of the lists of survivors that a check kills: they can go."""
    killers = {result.id: result.killer for result in results if result.status is Status.KILLED}
    return [
        f"no survivor any more: {name} {mutant} is killed by {killers[name]}"
        for name, mutant in listed.items()
        if name in killers
    ]


def _wrong_entries(listed: Iterable[Equivalent], mutants: list[Mutant], results: list[Result]) -> list[str]:
    """Entries of the list that are killed, or are no mutants of a module that was looked at."""
    by_id = {result.id: result for result in results}
    known = {mutant.id for mutant in mutants}
    looked_at = {mutant.module for mutant in mutants}
    lines = []
    for entry in listed:
        result = by_id.get(entry.id)
        if result is not None and result.status is Status.KILLED:
            lines.append(f"not equivalent: {entry} is killed by {result.killer}")
        elif entry.id not in known and entry.module in looked_at:
            lines.append(f"no such mutant any more: {entry}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
