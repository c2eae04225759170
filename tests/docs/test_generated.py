"""What docs/_ext makes of help texts, requirements, a JSON schema and documents of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs._ext import examples, pages
from plumbline.captures.filters import parse
from plumbline.cli.commands import record
from plumbline.monitors import MONITORS
from plumbline.proxy.faults.language import FaultKind, parse_fault
from plumbline.reports.formats import FORMATS
from tests.docs.pages import DOCS, ROOT


def table_cells(path: Path) -> list[str]:
    """Code in the first column of the tables of a page."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [part for row in rows for part in row.split("`")[1::2]]


def test_text_is_escaped_such_that_markdown_shows_it_unchanged() -> None:
    text = r"a * in <b> with _INBOX.x [1](2) `$JS.ACK` | C:\x & #4 ~ {y}"
    (paragraph,) = [t for t in MarkdownIt().parse(pages.escaped(text)) if t.type == "inline"]
    shown = "".join(child.content for child in paragraph.children or ())
    assert shown == text
    assert {child.type for child in paragraph.children or ()} <= {"text", "text_special"}


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        (
            "[the format](conformance/requirements/README.md)",
            "[the format](../reference/requirement-format.md)",
        ),
        ("[a check](CONTRIBUTING.md#a-check)", "[a check](contribute.md#a-check)"),
        ("[first](docs/tutorials/first-trace.md)", "[first](../tutorials/first-trace.md)"),
        ("[the lock file](requirements.lock)", "the lock file (`requirements.lock`)"),
        ("[LICENSE](LICENSE)", "`LICENSE`"),
        ("[site](https://example.org/)", "[site](https://example.org/)"),
        ("```text\n[x](LICENSE)\n```", "```text\n[x](LICENSE)\n```"),
    ],
)
def test_links_of_a_document_become_those_of_the_site(
    link: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "NOTES.md").write_text(f"{link}\n", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert pages.document("NOTES.md", "project/notes.md") == f"{shown}\n"


def test_every_requirement_has_an_anchor_that_is_its_id() -> None:
    page = pages.generated()["reference/requirements/JS-PULL.md"]
    assert '<span id="JS-PULL-021"></span>\n\n## JS-PULL-021' in page


def test_a_requirement_shows_the_exchange_that_is_run() -> None:
    page = pages.generated()["reference/requirements/JS-PULL.md"]
    first = page[page.index('id="JS-PULL-001"') : page.index('id="JS-PULL-002"')]
    assert "The exchange that is run: conformance/traces/" in first
    assert "\n> PUB $JS.API.CONSUMER.MSG.NEXT." in first


def test_every_rule_of_a_monitor_is_in_the_table_of_rules() -> None:
    table = pages.generated()[pages.RULES]
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == [one.rule for one in MONITORS]
    assert "[JS-PUB-001](requirements/JS-PUB.md#js-pub-001)" in table


def test_subcommands_have_pages_of_their_own() -> None:
    assert {"verify", "broker", "broker nats", "broker amqp"} <= pages.command_pages().keys()


def test_a_schema_becomes_one_table_for_each_object() -> None:
    schema = {
        "$defs": {
            "Run": {
                "description": "One ``run``.",
                "properties": {
                    "checks": {"type": "array", "items": {"$ref": "#/$defs/Check"}},
                    "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["checks"],
            },
        }
    }
    assert pages.schema_tables(schema).splitlines() == [
        "## Run",
        "",
        "One `run`.",
        "",
        "| Field | Type | Required |",
        "| --- | --- | --- |",
        "| `checks` | array of [Check](#check) | yes |",
        "| `name` | string or null | no, default `null` |",
    ]


def test_pages_that_are_no_longer_generated_are_removed(tmp_path: Path) -> None:
    stale = tmp_path / pages.COMMANDS / "forgotten.md"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    pages.write(tmp_path)
    assert not stale.exists()
    assert (tmp_path / pages.COMMANDS / "verify.md").is_file()


FAULTS = [
    cell
    for cell in table_cells(DOCS / "reference" / "fault-language.md")
    if cell.split()[0] in list(FaultKind)
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_reference_page_is_understood(fault: str) -> None:
    assert parse_fault(fault).text == fault


def test_every_fault_is_on_the_reference_page() -> None:
    assert {fault.split()[0] for fault in FAULTS} == set(FaultKind)


def test_the_help_of_record_names_every_fault() -> None:
    assert [kind for kind in FaultKind if kind not in record.EPILOG] == []


@pytest.mark.parametrize(
    "text",
    [
        line.split("'")[1]
        for line in (DOCS / "reference" / "filter-language.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("$ plumbline show")
    ],
)
def test_a_filter_of_the_reference_page_is_understood(text: str) -> None:
    assert callable(parse(text))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    options = ["-W", "--keep-going", "-q", "-b", "html", "-D", "plumbline_examples=0"]
    places = ["-d", str(tmp_path / "trees"), "docs", str(tmp_path / "site")]
    command = [sys.executable, "-m", "sphinx", *options, *places]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    page = tmp_path / "site" / "reference" / "requirements" / "JS-PULL.html"
    assert 'id="JS-PULL-021"' in page.read_text(encoding="utf-8")


def test_every_adapter_is_on_the_page_of_the_protocol() -> None:
    clients = ROOT / "conformance" / "clients"
    folders = {path.name for path in (clients / "adapters").iterdir() if path.is_dir()} - {"shared"}
    assert folders
    assert folders - set(table_cells(clients / "PROTOCOL.md")) == set()


def test_the_site_has_an_example_of_every_format_that_is_one_file() -> None:
    assert set(examples.FORMATS) == set(FORMATS) - {"allure"}
