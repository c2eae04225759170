"""The Markdown summary: what a job page shows, and that strangers cannot write on it."""

from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from plumbline.reports.summary_md import MAX_RED_CHECKS, code, fence, prose, render
from tests.reports.samples import HOSTILE, big_result, conformant_result, exchange, only, sample_result

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def test_verdict_counts_and_red_checks_are_there() -> None:
    page = MARKDOWN.render(render(sample_result()))
    assert "4 of 8 tested requirements passed" in page
    assert "3 passed, 3 failed, 1 unsupported" in page
    assert "<td>MUST</td>\n<td>9</td>\n<td>7</td>\n<td>4</td>" in page
    assert "plumbline verify nats://127.0.0.1:4222 --select adr-13/no-wait-on-an-empty-consumer" in page
    assert page.count("<h3>") == 6


def test_a_conformant_run_has_no_red_section() -> None:
    text = render(conformant_result())
    assert text.startswith("## ✅ Conformant. 3 of 3 tested requirements passed.")
    assert "###" not in text


def test_the_offending_operation_is_marked() -> None:
    text = render(only("adr-13/no-wait-on-an-empty-consumer"))
    assert re.search(r"^\* +0\.0064 client < HMSG", text, re.MULTILINE)


def test_hostile_text_makes_no_markup() -> None:
    nasty = f"{HOSTILE}\n```\n# head\n<img src=x onerror=alert(1)>\n````` @someone [a](javascript:x) ![b](http://x)"
    base = only("core_delivery::subjects_are_delivered_as_published")
    (check,) = base.checks
    check = replace(
        check, title=nasty, message=nasty, expected=nasty, actual=nasty, requirements=(nasty,), id=nasty
    )
    result = replace(
        base,
        checks=(check,),
        target=replace(base.target, server_name=nasty, version=nasty),
        summary=replace(base.summary, reasons=(nasty,)),
    )
    page = MARKDOWN.render(render(result))
    tags = set(re.findall(r"<(/?\w+)", page))
    allowed = ["h2", "h3", "p", "code", "pre", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"]
    assert tags <= {f"{end}{tag}" for end in ("", "/") for tag in allowed}
    assert page.count("<h2>") == 1
    assert page.count("<h3>") == 1


def test_server_text_appears_only_in_code_spans() -> None:
    base = only("core_delivery::subjects_are_delivered_as_published")
    (check,) = base.checks
    check = replace(check, message="@someone #1", actual="@someone", expected="` @someone")
    target = replace(base.target, server_name="`@someone`", version="@someone|")
    page = MARKDOWN.render(render(replace(base, checks=(check,), target=target)))
    assert "@someone" in page
    assert "@someone" not in re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL)


def test_code_spans_and_fences_outlast_the_backticks_inside() -> None:
    assert MARKDOWN.renderInline(code("a``b`c")) == "<code>a``b`c</code>"
    assert MARKDOWN.renderInline(code("`")) == "<code>`</code>"
    assert (
        MARKDOWN.render(fence("```\n<b>"))
        == '<pre><code class="language-text">```\n&lt;b&gt;\n</code></pre>\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "2 of 3 *passed* [x] <b> _y_ `z` | # 1. @a",
        "www.example.test",
        "see example.test:80",
        "someone@example.test",
        "fixes #17, closes GH-17: :tada:",
        "@someone",
        "1. one",
        "- one",
        "&#64;someone",
        "a  b\\c",
        "abc 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_text_with_markdown_becomes_code_span(text: str) -> None:
    shown = MARKDOWN.renderInline(prose(text))
    assert re.fullmatch("<code>.*</code>", shown)
    assert html.unescape(shown[6:-7]) == text.replace("|", "¦")


@pytest.mark.parametrize(
    "text",
    [
        "Pull(n): a no wait request first, then a long one on the same inbox",
        "Not conformant. 4 of 8 tested requirements passed, 3 claimed but not tested. Exit code 4.",
        "An empty consumer answers a no-wait pull at once",
    ],
)
def test_plain_text_is_not_escaped(text: str) -> None:
    assert prose(text) == text


def test_a_megabyte_of_anything_makes_a_short_page() -> None:
    base = only("core_delivery::subjects_are_delivered_as_published")
    huge = "`\u202e<b>@a\n" * 150_000
    (check,) = base.checks
    wire = exchange(*[f"< {huge}"] * 50, connection=huge, offending=3)
    check = replace(check, title=huge, message=huge, expected=huge, actual=huge, known=(huge,), wire=wire)
    text = render(replace(base, checks=(check,), target=replace(base.target, version=huge, server_name=huge)))
    assert len(text) < 100_000
    assert {char for char in text if not char.isprintable()} <= {"\n", "\ufe0f"}


def test_a_page_of_many_failures_stays_short() -> None:
    text = render(big_result(1_000, failing_every=1))
    assert text.count("### ") == MAX_RED_CHECKS
    assert f"{1_000 - MAX_RED_CHECKS} more red checks" in text
    assert len(text.encode()) < 200_000
