"""Histories of clusters in files: read as they were written; judge and Spark find the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.judging import ClusterJudgement, ClusterRule
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.cluster.nats.history_files import suspects
from plumbline.cluster.nats.history_files.files import make_room, read_history, write_history
from plumbline.cluster.nats.history_files.judging import judge_here, judge_with_spark
from plumbline.cluster.nats.history_files.layout import (
    ATTEMPTS,
    HEAD,
    LOGS,
    READS,
    HistoryError,
    arrow_schema,
    read_head,
)
from plumbline.cluster.nats.history_files.suspects import find_suspects
from plumbline.cluster.nats.judging import judge
from tests.cluster.simulated.cluster import SimulatedCluster
from tests.cluster.simulated.nodes import SimulatedDefect
from tests.cluster.test_judging import NEAR_MISSES, VIOLATIONS

OF_WHOLE_RUNS = ("stream gone", "nodes behind")
RANDOM_MESSAGES = 400


def quiet(step: str) -> None:
    """Shows no step."""


def written(folder: Path, history: ClusterHistory) -> Path:
    write_history(folder, history, "nats-server@2.15.3", "2.15.3")
    return folder


def by_spark(spark: SparkSession, folder: Path) -> ClusterJudgement:
    return judge_with_spark(spark, folder, read_head(folder), quiet).judgement


def comparable(judged: ClusterJudgement) -> tuple[ClusterJudgement, Counter[str]]:
    """Findings in no order: Spark has none."""
    found = Counter(str(finding) for finding in judged.findings)
    return msgspec.structs.replace(judged, findings=()), found


def side_by_side(histories: Iterable[ClusterHistory]) -> ClusterHistory:
    """One history that has each as a part of its own: other processes, later sequences, later times."""
    attempts: list[Attempt] = []
    reads: list[LeaderRead] = []
    logs: dict[int, dict[int, str]] = {node: {} for node in range(3)}
    for number, one in enumerate(histories, 1):
        later, higher, others = number * 10_000, number * 1_000, number * 100

        def renamed(message: str, others: int = others) -> str:
            process, _, counter = message.partition("-")
            return f"{int(process) + others}-{counter}"

        for attempt in one.attempts:
            moved = msgspec.structs.replace(
                attempt, process=attempt.process + others, invoked=attempt.invoked + later
            )
            if attempt.completed:
                moved.completed += later
            if attempt.sequence:
                moved.sequence += higher
            attempts.append(moved)
        for read in one.reads:
            found = None if read.found is None else renamed(read.found)
            times = (read.invoked + later, read.completed + later)
            reads.append(LeaderRead(*times, read.node, read.asked + higher, found))
        for log in one.logs:
            logs[log.node] |= {at + higher: renamed(message) for at, message in log.messages.items()}
    return ClusterHistory(attempts, reads, [NodeLog(node, messages) for node, messages in logs.items()])


def random_history(seed: int) -> ClusterHistory:
    """A correct run, of which some cells are then changed."""
    random = Random(seed)
    attempts: list[Attempt] = []
    logs: list[dict[int, str]] = [{}, {}, {}]
    sequence = 0
    for number in range(RANDOM_MESSAGES):
        at = 100 * number
        attempt = Attempt(number % 4, number // 4, number % 3, at + random.randrange(90), connection=1)
        attempt.outcome = random.choice([*[AttemptOutcome.OK] * 8, *AttemptOutcome])
        if attempt.outcome is AttemptOutcome.OK or random.random() < 0.05:
            sequence += 1
            for log in logs:
                log[sequence] = attempt.id
        if attempt.outcome is AttemptOutcome.OK:
            attempt.completed, attempt.sequence = attempt.invoked + random.randrange(1, 300), sequence
        attempts.append(attempt)
    reads = [
        LeaderRead(at, at + 5, 0, asked, logs[0].get(asked))
        for at in random.sample(range(100 * RANDOM_MESSAGES), 20)
        for asked in [random.randint(1, sequence)]
    ]
    for _ in range(8):
        log, at = random.choice(logs), random.randint(1, sequence)
        match random.randrange(4):
            case 0:
                log.pop(at, None)
            case 1:
                log[at] = random.choice(["7-7", "no name", "0-1", "03-1", "3--1", ""])
            case 2:
                random.choice(attempts).sequence = at
            case 3:
                random.choice(attempts).outcome = random.choice(list(AttemptOutcome))
    return ClusterHistory(attempts, reads, [NodeLog(node, log) for node, log in enumerate(logs)])


@pytest.mark.parametrize("name", [*VIOLATIONS, *NEAR_MISSES])
def test_a_history_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    history = VIOLATIONS[name][1] if name in VIOLATIONS else NEAR_MISSES[name]
    folder = written(tmp_path / "history", history)
    assert read_history(folder, read_head(folder)) == history
    assert judge_here(folder, read_head(folder), quiet).judgement == judge(history)


def test_spark_finds_each_violation_and_no_near_miss(spark: SparkSession, tmp_path: Path) -> None:
    violations = [history for name, (_, history) in VIOLATIONS.items() if name not in OF_WHOLE_RUNS]
    history = side_by_side([*violations, *NEAR_MISSES.values()])
    expected = judge(history)
    missing = {rule for name, (rule, _) in VIOLATIONS.items() if name not in OF_WHOLE_RUNS}
    assert missing <= {finding.rule for finding in expected.findings}
    assert comparable(by_spark(spark, written(tmp_path / "history", history))) == comparable(expected)


@pytest.mark.parametrize("name", OF_WHOLE_RUNS)
def test_spark_finds_what_is_wrong_with_the_whole_run(name: str, spark: SparkSession, tmp_path: Path) -> None:
    history = VIOLATIONS[name][1]
    assert comparable(by_spark(spark, written(tmp_path / "history", history))) == comparable(judge(history))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_both_judge_a_random_history_the_same(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    history = random_history(seed)
    expected = judge(history)
    assert len(expected.findings) > 3
    assert comparable(by_spark(spark, written(tmp_path / "history", history))) == comparable(expected)


@pytest.mark.parametrize(
    "defect",
    [
        None,
        SimulatedDefect.ACKS_TOO_LOW,
        SimulatedDefect.TRUNCATES_TAIL,
        pytest.param(SimulatedDefect.STALE_READS, marks=pytest.mark.slow),
        pytest.param(SimulatedDefect.FORGETS_MESSAGE_IDS, marks=pytest.mark.slow),
        pytest.param(SimulatedDefect.CHANGES_ENTRY, marks=pytest.mark.slow),
        pytest.param(SimulatedDefect.ACKS_ONE_SEQUENCE_TWICE, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_both_judge_a_simulated_cluster_the_same(
    defect: SimulatedDefect | None, spark: SparkSession, tmp_path: Path
) -> None:
    run = SimulatedCluster(3, defect, 60).run()
    # Of two messages with one sequence, the text names the one first that was sent first.
    attempts = sorted(run.attempts, key=lambda one: (one.invoked, one.process, one.counter))
    history = ClusterHistory(attempts, run.reads, run.logs, is_whole=run.is_whole)
    assert comparable(by_spark(spark, written(tmp_path / "history", history))) == comparable(judge(history))


def test_only_suspects_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    """Else a history of any size would have to fit into memory."""
    history = random_history(5)
    clean = ClusterHistory(
        [msgspec.structs.replace(one, outcome=AttemptOutcome.INDETERMINATE) for one in history.attempts],
        [],
        [NodeLog(node, {}) for node in range(3)],
    )
    folder = written(tmp_path / "history", clean)
    found = find_suspects(spark, folder, read_head(folder), tmp_path / "scratch", quiet)
    assert (found.history.attempts, found.others.attempts) == ([], RANDOM_MESSAGES)


def test_what_is_too_much_is_left_out_and_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "HISTORY_SUSPECTS", 10)
    history = random_history(1)
    gone = ClusterHistory(history.attempts, [], [NodeLog(node, {}) for node in range(3)])
    judged = judge_with_spark(
        spark, written(tmp_path / "history", gone), read_head(tmp_path / "history"), quiet
    )
    found = len(judged.judgement.of(ClusterRule.LOST))
    assert 10 <= found <= 30  # with those at the same sequences
    assert judged.left_out == len(judge(gone).of(ClusterRule.LOST)) - found


# -- files of others -------------------------------------------------------------------------


def replaced(folder: Path, table: str, **columns: pa.Array) -> None:
    """With these columns instead of what was written."""
    file = folder / table / "part-0.parquet"
    found = pq.read_table(file)
    for name, array in columns.items():
        found = (
            found.drop_columns([name])
            if array is None
            else found.set_column(found.schema.get_field_index(name), name, array)
        )
    pq.write_table(found, file)


def with_head(folder: Path, **changed: object) -> None:
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps(head | changed))


def _write(path: Path, text: str) -> None:
    path.write_text(text)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no head": (lambda folder: (folder / HEAD).unlink(), "is no history"),
    "no JSON": (lambda folder: _write(folder / HEAD, "{"), HEAD),
    "another schema": (lambda folder: with_head(folder, schema="x/9"), "schema 'x/9' is not known"),
    "an unknown key": (lambda folder: with_head(folder, colour="red"), "no key 'colour'"),
    "a node twice": (lambda folder: with_head(folder, nodes=[{"node": 0}, {"node": 0}]), "twice"),
    "a node that the head lacks": (lambda folder: with_head(folder, nodes=[{"node": 0}]), "logs has node"),
    "no Parquet": (
        lambda folder: _write(folder / LOGS / "part-0.parquet", "text"),
        "logs/part-0.parquet is no Parquet file",
    ),
    "a column is missing": (lambda folder: replaced(folder, LOGS, message=None), "no column message"),
    "a type": (
        lambda folder: replaced(folder, READS, asked=pa.array(["1"])),
        "column asked is string, and must be int64",
    ),
    "a null": (
        lambda folder: replaced(folder, ATTEMPTS, sequence=pa.array([1, None, 3], "int64")),
        "attempts: column sequence has nulls",
    ),
    "an outcome": (
        lambda folder: replaced(folder, ATTEMPTS, outcome=pa.array(["ok", "good", "ok"])),
        "outcome 'good' is none of ok, failed, indeterminate",
    ),
    "a process": (
        lambda folder: replaced(folder, ATTEMPTS, process=pa.array([0, -1, 0], "int32")),
        "process must be from 0",
    ),
    "a counter": (
        lambda folder: replaced(folder, ATTEMPTS, counter=pa.array([0, 1 << 40, 0], "int64")),
        "counter must be from 0",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three messages, and one read."""
    history = VIOLATIONS["read as another message"][1]
    return written(tmp_path / "history", history)


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_wrong_are_a_clear_error(name: str, folder: Path) -> None:
    change, text = BAD[name]
    change(folder)
    with pytest.raises(HistoryError, match=text):
        judge_here(folder, read_head(folder), quiet)


@pytest.mark.parametrize("name", ["a null", "an outcome", "a counter", "a node that the head lacks"])
def test_spark_gives_the_same_errors(name: str, folder: Path, spark: SparkSession) -> None:
    change, text = BAD[name]
    change(folder)
    with pytest.raises(HistoryError, match=text):
        judge_with_spark(spark, folder, read_head(folder), quiet)


def test_several_files_are_one_table(folder: Path) -> None:
    file = folder / LOGS / "part-0.parquet"
    rows = pq.read_table(file)
    before = read_history(folder, read_head(folder))
    pq.write_table(rows.slice(0, 4), file)
    pq.write_table(rows.slice(4), folder / LOGS / "part-1.parquet")
    assert read_history(folder, read_head(folder)) == before


def test_an_older_history_is_replaced_and_other_files_are_not(folder: Path) -> None:
    write_history(folder, VIOLATIONS["lost end"][1])
    assert read_history(folder, read_head(folder)) == VIOLATIONS["lost end"][1]
    (folder / "mine.txt").write_text("x")
    with pytest.raises(HistoryError, match=r"other files \(mine.txt\)"):
        make_room(folder)


def test_the_schema_of_a_table_has_nulls_in_one_place() -> None:
    assert [
        field.name for table in (ATTEMPTS, LOGS, READS) for field in arrow_schema(table) if field.nullable
    ] == ["found"]


# -- the command -----------------------------------------------------------------------------


def judge_history(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["judge-history", *map(str, arguments)])


def test_the_command_shows_findings_and_their_exchange(folder: Path, tmp_path: Path) -> None:
    done = judge_history(folder, "--json", tmp_path / "result.json")
    assert done.exit_code == 1, done.stderr
    assert "FAILED        JS-CLUS-007" in done.stdout
    assert "> PUB 0-2 to node 1" in done.stdout
    assert "not conformant: nats-server@2.15.3" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["counts"]["acknowledged"] == 3
    assert [finding["rule"] for finding in result["findings"]] == [ClusterRule.SAME_MESSAGE]


def test_the_command_passes_a_correct_history(tmp_path: Path) -> None:
    folder = written(tmp_path / "history", NEAR_MISSES["read as it is stored"])
    done = judge_history(folder)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "conformant: nats-server@2.15.3" in done.stdout


def test_the_command_refuses_what_is_no_history(tmp_path: Path) -> None:
    done = judge_history(tmp_path)
    assert done.exit_code == 2
    assert f"{tmp_path} is no history: history.json" in done.stderr


def test_the_command_refuses_spark_in_one_process(folder: Path) -> None:
    done = judge_history(folder, "--engine", "local", "--master", "local[2]")
    assert done.exit_code == 2
    assert "--master and --conf need Spark" in done.stderr
