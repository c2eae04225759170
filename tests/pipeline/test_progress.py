"""What a long run shows on a terminal."""

from __future__ import annotations

import io

import pytest

from plumbline.pipeline.progress import BytesRead, Progress


@pytest.mark.parametrize(
    ("read", "of_step", "line"),
    [
        (0, 5.0, "decoding, 0 % (9 s)"),
        (250, 0.5, "decoding, 25 % (9 s)"),
        (250, 5.0, "decoding, 25 % (9 s, about 15 s left in this step)"),
        (999, 5.0, "decoding, 99 % (9 s, about 1 s left in this step)"),
        (1000, 5.0, "decoding (9 s)"),
    ],
)
def test_a_step_shows_how_far_it_is_and_how_long_it_will_take(read: int, of_step: float, line: str) -> None:
    work = BytesRead(1000)
    progress = Progress(work, io.StringIO())
    progress.step("decoding")
    work.add(read)
    assert progress.line(9.0, of_step) == line


def test_steps_are_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Progress(BytesRead(0), out) as progress:
        progress.step("decoding 2 captures")
    assert out.getvalue() == "plumbline: decoding 2 captures\n"
