"""The site of many runs: names, cells, releases, differences, pages, and text of strangers."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.reports.matrix.compare import compare
from plumbline.reports.matrix.runs import TargetRunResult, stored, target_name
from plumbline.reports.matrix.site import SiteOptions, build
from plumbline.reports.matrix.table import since, tables
from plumbline.reports.result_json import encode
from plumbline.verdicts import RunResult, Target
from tests.reports.runs import FIRST, SECOND, run_of
from tests.reports.samples import HOSTILE, sample_result


def named(found: RunResult) -> TargetRunResult:
    return TargetRunResult(target_name(found.target), found)


# Names


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (
            Target("nats://h:1", version="2.9.10", arguments=("--target", "nats-server@debian")),
            "nats-server@2.9.10",
        ),
        (
            Target("nats://h:1", version="2.9.10", arguments=("--server", "/a/nats-server-2.9.10")),
            "nats-server@2.9.10",
        ),
        (
            Target("amqp://h", "amqp", version="3.10.8", arguments=("--server", "/a/rabbitmq-server")),
            "rabbitmq@3.10.8",
        ),
        (Target("nats://h:1", version="2.15.2", arguments=()), "reference-nats@2.15.2"),
        (Target("amqp://h:1", "amqp", version="3.10.8", arguments=("amqp",)), "reference-amqp@3.10.8"),
        (
            Target("nats://h:1", version="2.9", arguments=("--level=2.9", "--defect=x")),
            "reference-nats@2.9+x",
        ),
        (Target("nats://u@h:4222", version="2.10"), "h:4222"),
        (Target("nats://h:4222", arguments=("nats://h:4222", "--variant=auth=nats://h:2")), "h:4222"),
    ],
)
def test_a_target_is_named_by_how_it_was_reached(target: Target, name: str) -> None:
    assert target_name(target) == name


# Since which release

RELEASES = ("2.9.25", "2.10.0", "2.10.14", "2.11.0")


@pytest.mark.parametrize(
    ("verdicts", "release", "words"),
    [
        (("passed",) * 4, "", "every release that was run"),
        (("failed", "failed", "passed", "passed"), "2.10.14", "since 2.10.14; failed in 2.10.0"),
        (("passed", "failed", "failed", "failed"), "", "up to 2.9.25; broken since 2.10.0"),
        (("passed", "failed", "waived", "passed"), "", "not by 2.10.0, 2.10.14"),
        (("failed",) * 4, "", "no release that was run"),
        (
            ("unsupported", "unsupported", "passed", "passed"),
            "2.10.14",
            "since 2.10.14; not claimed by 2.9.25, 2.10.0",
        ),
        (("unsupported",) * 4, "", "not claimed by any release that was run"),
        (("inconclusive",) * 4, "", "no evidence"),
        (("failed", "inconclusive", "passed", "passed"), "2.10.14", "since 2.10.14; failed in 2.9.25"),
    ],
)
def test_since_which_release_a_requirement_is_met(verdicts: Sequence[str], release: str, words: str) -> None:
    found = since(list(zip(RELEASES, verdicts, strict=True)), "nats-server")
    assert (found.release, found.text) == (release, words)


# Two runs compared


def test_each_difference_is_listed_once() -> None:
    before = run_of(
        {
            "A-1": "passed",
            "A-2": "failed",
            "A-3": "waived",
            "A-4": "waived",
            "A-5": "passed",
            "A-6": "passed",
        },
        waiver="known",
    )
    after = run_of(
        {
            "A-1": "failed",
            "A-2": "passed",
            "A-3": "failed",
            "A-4": "waived",
            "A-5": "unsupported",
            "A-7": "failed",
        },
        waiver="known, and reported",
    )
    found = compare(before, after)
    changed_ids = {
        "newly_failing": [change.requirement.id for change in found.newly_failing],
        "newly_passing": [change.requirement.id for change in found.newly_passing],
        "waivers": [change.requirement.id for change in found.waivers],
        "other": [change.requirement.id for change in found.other],
    }
    assert changed_ids == {
        "newly_failing": ["A-1", "A-3", "A-7"],
        "newly_passing": ["A-2"],
        "waivers": ["A-4"],
        "other": ["A-5", "A-6"],
    }
    assert found.newly_failing[0].reason == "why A-1"
    assert found.waivers[0].reason == "known, and reported"
    assert compare(before, before).same


# The matrix


def test_rows_are_latest_runs_sorted_by_release() -> None:
    runs = [
        named(run_of({"A-1": "passed"}, version="2.10.0", started=SECOND)),
        named(run_of({"A-1": "failed"}, version="2.10.0")),
        named(run_of({"A-1": "passed"}, version="2.9.25")),
    ]
    (table,) = tables(runs)
    assert [row.run.target for row in table.rows] == ["nats-server@2.9.25", "nats-server@2.10.0"]
    assert [run.result.summary.started for run in table.rows[1].history] == [FIRST, SECOND]
    assert [cell.tone for row in table.rows for cell in row.cells] == ["good", "good"]


@pytest.mark.parametrize(
    ("verdicts", "tone", "text"),
    [
        ({"A-1": "passed", "A-2": "passed"}, "good", "2/2"),
        ({"A-1": "passed", "A-2": "failed"}, "bad", "1/2"),
        ({"A-1": "passed", "A-2": "waived"}, "some", "1/2"),
        ({"A-1": "passed", "A-2": "inconclusive"}, "open", "1/2"),
        ({"A-1": "unsupported"}, "none", "-"),
    ],
)
def test_cell_shows_passed_share_of_claimed_requirements(
    verdicts: dict[str, str], tone: str, text: str
) -> None:
    ((row,),) = (table.rows for table in tables([named(run_of(verdicts))]))
    assert [(cell.tone, cell.text) for cell in row.cells] == [(tone, text)]


# The site


class Page(HTMLParser):
    """The links of a page, its ids, and the tags in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.ids |= {found["id"] or ""} if "id" in found else set()
        self.links += [found["href"] or ""] if tag == "a" else []


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    sample = replace(sample_result(), target=replace(sample_result().target, url=f"nats://{HOSTILE}"))
    runs = [
        named(run_of({"JS-PULL-021": "failed", "A-1": "passed"}, version="2.9.25")),
        named(run_of({"JS-PULL-021": "passed", "A-1": "failed"})),
        named(run_of({"JS-PULL-021": "passed", "A-1": "passed"}, started=SECOND)),
        TargetRunResult(f"strange {HOSTILE}", sample),
    ]
    build(runs, [], folder, SiteOptions(f"Title {HOSTILE}"))
    return folder


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 8
    for path, page in pages.items():
        for link in page.links:
            file, _, fragment = link.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there in (site / "index.json", site / "feed.xml") or there in pages, f"{path.name}: {link}"
            assert not fragment or there not in pages or fragment in pages[there].ids, f"{path.name}: {link}"


def test_text_of_strangers_does_nothing(site: Path) -> None:
    index = json.loads((site / "index.json").read_text())
    alone = {Path(one["page"].partition("#")[2]).name for one in index["requirements"]}
    for path in site.rglob("*.html"):
        if path.parent.parent.name != "targets" or path.name == "index.html":
            text = path.read_text("utf-8")
            assert Page(path).tags.count("script") == (0 if path.stem in alone else 1), path
            assert "\u202e" not in text
            assert "\x1b" not in text


def test_a_site_keeps_its_runs_and_grows(site: Path) -> None:
    kept = [run for run in stored(site) if run.target == "nats-server@2.10.0"]
    assert [run.result.summary.started for run in kept] == [FIRST, SECOND]
    assert not any(check.wire for run in kept for check in run.result.checks)
    page = build(
        [named(run_of({"A-1": "passed"}, version="2.11.0"))], stored(site), site, SiteOptions("Grown")
    )
    index = json.loads((site / "index.json").read_text())
    rows = {row["target"]: row for row in index["targets"]}
    assert {"nats-server@2.9.25", "nats-server@2.10.0", "nats-server@2.11.0"} < rows.keys()
    assert [run["started"] for run in rows["nats-server@2.10.0"]["history"]] == [FIRST, SECOND]
    ages = {one["id"]: one["since"].get("nats-server") for one in index["requirements"]}
    assert ages["JS-PULL-021"] == {"release": "2.10.0", "text": "since 2.10.0; failed in 2.9.25"}
    assert "Grown" in page.read_text()


def test_a_site_of_an_earlier_release_keeps_its_runs(site: Path) -> None:
    (path,) = site.glob("targets/nats-server_2.9.25/*.json.gz")
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    assert "nats-server@2.9.25" in [run.target for run in stored(site)]


def test_what_needs_no_reader_is_a_link_without_its_sentence(tmp_path: Path) -> None:
    verdicts = {"A-1": "passed", "A-2": "failed", "A-3": "waived", "A-4": "unsupported"}
    build([named(run_of(verdicts))], [], tmp_path, SiteOptions())
    (report,) = (path for path in tmp_path.glob("targets/*/*.html") if path.name != "index.html")
    text = report.read_text()
    assert (
        '<a id="A-1" href="../../requirements/A-1.html" data-g="A" data-l="MUST" data-o="passed">A-1</a>'
        in text
    )
    shown = [name for name in verdicts if f"What {name} says." in text]
    assert shown == ["A-2", "A-3"]  # what is waived has a card
    assert len(re.findall('href="../../requirements/A-[134].html"', text)) == 3


def test_targets_of_a_requirement_are_together_by_verdict_and_what_passed_is_last(tmp_path: Path) -> None:
    verdicts = {"1.0.0": "passed", "1.1.0": "failed", "1.2.0": "passed"}
    runs = [
        TargetRunResult(f"a@{version}", run_of({"A-1": verdict})) for version, verdict in verdicts.items()
    ]
    build(runs, [], tmp_path, SiteOptions())
    items = re.findall(r"<li>(.*?)</li>", (tmp_path / "requirements" / "A.html").read_text())
    assert items == [
        '<span class="chip v-failed">failed</span> <a href="../targets/a_1.1.0/index.html">a@1.1.0</a>',
        '<span class="chip v-passed">passed</span> a@1.0.0, a@1.2.0',
    ]


def test_a_page_of_one_requirement_brings_the_colours_that_it_uses(site: Path) -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", (site / "requirements" / "A-1.html").read_text())
    defined, used = (set(re.findall(form, style)) for form in (r"(--[a-z-]+):", r"var\((--[a-z-]+)\)"))
    assert defined == used
    assert "--good" in used


def test_machines_read_what_changed(site: Path) -> None:
    changes = json.loads((site / "index.json").read_text())["changes"]
    summaries = [(one["before"], one["after"], one["newly_failing"], one["newly_passing"]) for one in changes]
    assert ("nats-server@2.10.0", "nats-server@2.10.0", [], ["A-1"]) in summaries
    assert ("nats-server@2.9.25", "nats-server@2.10.0", [], ["JS-PULL-021"]) in summaries
    assert all((site / one["page"]).is_file() for one in changes)


def test_headings_leave_out_what_all_groups_begin_with() -> None:
    (table,) = tables([TargetRunResult("a@1", run_of({"AMQP-ACK-001": "passed", "AMQP-QOS-001": "passed"}))])
    assert (table.groups, table.headings) == (("AMQP-ACK", "AMQP-QOS"), ("ACK", "QOS"))
    (table,) = tables([TargetRunResult("a@1", run_of({"CORE-001": "passed", "JS-ACK-001": "passed"}))])
    assert table.headings == table.groups == ("CORE", "JS-ACK")
    (table,) = tables([TargetRunResult("a@1", run_of({"CORE-001": "passed"}))])
    assert table.headings == ("CORE",)


def test_verdict_shows_waived_count(tmp_path: Path) -> None:
    runs = [
        TargetRunResult("a@1", run_of({"A-1": "passed", "A-2": "waived"})),
        TargetRunResult("b@1", run_of({"A-1": "passed"})),
    ]
    page = build(runs, [], tmp_path, SiteOptions("Site")).read_text()
    assert '<span class="chip v-waived">Conformant</span> <span class="muted">1 waived</span>' in page
    assert '<span class="chip v-passed">Conformant</span></td>' in page
    assert page.count("1 waived</span>") == 2  # beside the verdict, and for who hears the cell


def test_a_client_library_has_a_table_and_a_name_of_its_own() -> None:
    library = Target(
        "", server_name="nats.go/jetstream", version="1.55.0", arguments=("--", "x"), kind="client"
    )
    runs = [named(run_of({"JS-1": "passed"})), named(replace(run_of({"CLIENT-1": "passed"}), target=library))]
    assert [(table.title, table.rows[0].run.target) for table in tables(runs)] == [
        ("NATS", "nats-server@2.10.0"),
        ("NATS client libraries", "nats.go/jetstream@1.55.0"),
    ]


def test_a_changed_outcome_is_counted_over_the_runs_of_one_release(site: Path) -> None:
    """A-1 failed, then passed; JS-PULL-021 is another on another release, which is no flip."""
    index = json.loads((site / "index.json").read_text())
    assert index["unstable"] == [
        {"check": "check/A-1", "target": "nats-server@2.10.0", "flips": 1, "pairs": 1}
    ]
    flips = {one["id"]: one["flips"] for one in index["requirements"]}
    assert flips["A-1"] == {"nats-server@2.10.0": {"flips": 1, "pairs": 1}}
    assert flips["JS-PULL-021"] == {}
    page = (site / "requirements" / "A-1.html").read_text()
    assert "1 of 1 (100%)" in page
    assert "why A-1" not in page  # of the run before
    again = run_of({"JS-PULL-021": "passed", "A-1": "failed"}, started="2026-11-22T08:00:00+00:00")
    build([named(again)], stored(site), site, SiteOptions())
    index = json.loads((site / "index.json").read_text())
    assert index["unstable"][0] == {
        "check": "check/A-1",
        "target": "nats-server@2.10.0",
        "flips": 2,
        "pairs": 2,
    }
    assert "why A-1" in (site / "requirements" / "A-1.html").read_text()


ATOM = "{http://www.w3.org/2005/Atom}"


def test_the_feed_has_what_newly_fails_or_passes(site: Path) -> None:
    root = ElementTree.parse(site / "feed.xml").getroot()
    entries = root.findall(f"{ATOM}entry")
    contents = [(one.findtext(f"{ATOM}title") or "", one.findtext(f"{ATOM}content") or "") for one in entries]
    assert contents[0] == (
        "nats-server@2.10.0: 1 newly passing, compared with nats-server@2.10.0",
        "A-1 passes: What A-1 says.",
    )
    assert contents[1][0] == "nats-server@2.10.0: 1 newly passing, compared with nats-server@2.9.25"
    assert root.findtext(f"{ATOM}updated") == entries[0].findtext(f"{ATOM}updated") == SECOND
    ids = [one.findtext(f"{ATOM}id") for one in entries]
    assert len(set(ids)) == len(ids)
    for one in entries:
        (link,) = one.findall(f"{ATOM}link")
        assert (site / link.attrib["href"]).is_file()
    before = (site / "feed.xml").read_bytes()
    build([], stored(site), site, SiteOptions(f"Title {HOSTILE}"))
    assert (site / "feed.xml").read_bytes() == before
    build([], stored(site), site, SiteOptions(url="https://example.org/matrix/"))
    assert b'href="https://example.org/matrix/changes/' in (site / "feed.xml").read_bytes()


DISPUTE = """
[[dispute]]
requirement = "JS-PULL-021"
opened = 2026-11-20
by = "a <b>vendor</b>"
link = "https://example.org/issues/12"
argument = "The page says it for no_wait only."
"""
DECIDED = 'outcome = "upheld"\ndecided = 2026-11-22\ndecision = "Asked with no_wait now."\n'


def test_a_requirement_has_its_disputes_and_a_link_to_open_one(tmp_path: Path) -> None:
    record, result = tmp_path / "disputes.toml", tmp_path / "result.json"
    record.write_text(DISPUTE + DISPUTE + DECIDED)
    result.write_bytes(encode(run_of({"JS-PULL-021": "failed", "JS-PULL-022": "passed"})))
    site = tmp_path / "site"
    url = "https://example.org/issues/new?title=Dispute:%20{id}"
    done = plumbline("matrix", result, "-o", site, "--disputes", record, "--dispute-url", url)
    assert done.exit_code == 0, done.stderr
    page = (site / "requirements" / "JS-PULL-021.html").read_text()
    assert "a &lt;b&gt;vendor&lt;/b&gt;" in page
    assert page.count("The page says it for no_wait only.") == 2
    assert "2026-11-22: Asked with no_wait now." in page
    assert 'href="https://example.org/issues/new?title=Dispute:%20JS-PULL-021"' in page
    assert "<p>None.</p>" in (site / "requirements" / "JS-PULL-022.html").read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (DISPUTE.replace("JS-PULL-021", "JS-PULL-999"), "there is no requirement 'JS-PULL-999'"),
        (DISPUTE.replace("https:", "javascript:"), "is not an https address"),
        (DISPUTE + 'decision = "x"', 'outcome has to be "upheld" or "rejected"'),
        (DISPUTE + 'outcome = "upheld"', "write decided (a date) and decision (a sentence)"),
        (DISPUTE + "x = 1", "there is no key 'x' in dispute"),
        (DISPUTE.replace("The page says it for no_wait only.", " "), "argument is empty"),
        ("[[dispute", "it is not TOML"),
    ],
)
def test_a_wrong_record_of_disputes_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    record = tmp_path / "disputes.toml"
    record.write_text(text)
    (tmp_path / "r.json").write_bytes(encode(run_of({"A-1": "passed"})))
    done = plumbline("matrix", tmp_path / "r.json", "-o", tmp_path / "site", "--disputes", record)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not (tmp_path / "site").exists()


# The commands


def plumbline(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "old.json", tmp_path / "new.json"
    paths[0].write_bytes(encode(run_of({"A-1": "passed", "A-2": "failed"})))
    paths[1].write_bytes(encode(run_of({"A-1": "failed", "A-2": "failed"}, started=SECOND)))
    return paths


def test_matrix_writes_site(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = plumbline("matrix", *files, f"mine={files[0]}", "-o", tmp_path / "site")
    assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / "site" / "index.html"))
    again = plumbline("matrix", "-o", tmp_path / "site")
    assert again.exit_code == 0
    index = json.loads((tmp_path / "site" / "index.json").read_text())
    assert [row["target"] for row in index["targets"]] == ["mine", "nats-server@2.10.0"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give result files, or targets with --run"),
        (["absent.json"], "absent.json: No such file"),
        (["--run", "nope"], "unknown target 'nope'"),
    ],
)
def test_invalid_matrix_folder_is_reported(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = plumbline("matrix", *arguments, "-o", tmp_path / "site")
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not (tmp_path / "site").exists()


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = plumbline("matrix", tmp_path / "x.json", "-o", tmp_path / "site")
    assert (done.exit_code, "x.json: not a Plumbline result" in done.stderr) == (2, True)


def test_two_runs_are_compared_on_the_terminal(files: tuple[Path, Path]) -> None:
    done = plumbline("report", files[1], "--against", files[0])
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == "newly failing: 1"
    assert "A-1" in done.stdout
    assert "passed -> failed: why A-1" in done.stdout
    assert plumbline("report", files[0], "--against", files[1]).exit_code == 0


def test_reports_are_made_of_a_run_that_is_over(files: tuple[Path, Path], tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("r.html", "r.xml", "r.md", "r.json", "r.sarif", "r.svg")]
    flags = [
        f"--{kind}={path}"
        for kind, path in zip(("html", "junit", "markdown", "json", "sarif", "badge"), paths, strict=True)
    ]
    assert plumbline("report", files[0], *flags).exit_code == 0
    assert paths[3].read_bytes() == files[0].read_bytes()
    assert all(path.stat().st_size for path in paths)
    assert "Not conformant" in plumbline("report", files[0]).stdout
