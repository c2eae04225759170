"""No text makes the parser raise anything but ``TraceSyntaxError``; what it reads can be shown and sent."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from plumbline.conformance.trace.cases import parse_trace, parse_traces
from plumbline.conformance.trace.language import AnyOrder, Expect, Send, Trace
from plumbline.conformance.trace.template import NotANumberError
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.test_header import DESIGN_PAGE
from tests.conformance.trace.writing import HEADER, operation, scope

SAMPLE = (
    "names OTHER\n"
    + DESIGN_PAGE
    + r"""
given message ORDERS.new | Nats-Msg-Id: 1 | A: x || order 1
given connection worker verbose=true user="a b"
worker> HPUB foo.bar $reply 22 27
NATS/1.0
Bar: Baz

hello
worker< MSG *.{x}.{y:int} {sid} {ack} 5 | a {:a|b} {:text}  between 1ms and 2s
> PUB {ack} 4 | +\x41{y+1}
in any order
  < HMSG $inbox 1 28 28 | NATS/1.0 {:404 No Messages|408 Request Timeout} | A: ORDERS.x || {"a":[1,{y+1},...]}
  < -ERR 'x {subject ORDERS.x}'
end
> raw "PING\r\n\xff{"
await consumer ORDERS DISPATCH delivered=2/1 num_pending={y} within 2s
expect stream ORDERS messages=1 bytes=53
< closed within 1s
"""
)
TABLED = (
    SAMPLE.replace("ORDERS", "{stream}").replace(
        "names OTHER\n",
        """names OTHER
cases
| name | stream | more     |
| a    | ORDERS | | x {y}  |
| b.c  | EVENTS |          |
""".replace("| | x", "| \\| x"),
    )
    + "< MSG foo 1 {more}\n"
)
MARKS = r"""{ } | || \ " . {a} {:time} within * > < $ _INBOX [ ] , : -1 # given end"""
WORDS = st.sampled_from(
    [
        *SAMPLE.split(),
        *MARKS.split(),
        "cases",
        "{stream}",
        "\\|",
        "\n",
        " ",
        "within 1s",
        "\u2028",
        "\x0b",
        "9" * 30,
    ]
)


def read(text: str) -> Trace | None:
    try:
        return parse_trace(text, "fuzz.trace")
    except TraceSyntaxError as error:
        refused = error
    _check(refused)
    return None


def read_all(text: str) -> tuple[Trace, ...]:
    """The same for a file that may have a table."""
    try:
        return parse_traces(text, "fuzz.trace")
    except TraceSyntaxError as error:
        _check(error, text.count("\n") + 1)
    return ()


def _check(refused: TraceSyntaxError, lines: int | None = None) -> None:
    assert refused.problems
    assert "fuzz.trace:" in str(refused)
    assert lines is None or all(0 < problem.line <= lines for problem in refused.problems)


@given(st.text())
@example("\ud800")
@example("in any order\nend")
@example("< MSG a 1 {" * 1000)
def test_any_text(text: str) -> None:
    read(text)
    read(HEADER + text)
    read_all(f"{HEADER}cases\n{text}")


@given(st.lists(WORDS, max_size=40).map(" ".join))
def test_words_of_the_language_in_any_order(text: str) -> None:
    read(HEADER + text)
    read_all(HEADER + text)


@given(st.integers(0, len(TABLED)), st.integers(0, 12), st.one_of(WORDS, st.text(max_size=5)))
def test_a_damaged_file_with_a_table(start: int, length: int, insert: str) -> None:
    read_all(TABLED[:start] + insert + TABLED[start + length :])


@given(st.integers(0, len(SAMPLE)), st.integers(0, 12), st.one_of(WORDS, st.text(max_size=5)))
def test_a_damaged_trace(start: int, length: int, insert: str) -> None:
    trace = read(SAMPLE[:start] + insert + SAMPLE[start + length :])
    if trace is None:
        return
    played = scope(trace, x="1", y="2", sid="3", ack="4")
    for step in trace.steps:
        expects = step.expects if isinstance(step, AnyOrder) else (step,) if isinstance(step, Expect) else ()
        try:
            for expect in expects:
                assert expect.pattern.show(played)
                expect.pattern.differences(operation(b"MSG a.b.3 3 4 2\r\nhi\r\n"), played)
            if isinstance(step, Send):
                assert step.outgoing.operation(played).raw
        except (NotANumberError, LookupError):
            pass  # the captures given here are not those the damaged trace takes


def test_the_samples_themselves_are_traces() -> None:
    assert read(SAMPLE) is not None
    assert [trace.case for trace in parse_traces(TABLED, "fuzz.trace")] == ["a", "b.c"]
