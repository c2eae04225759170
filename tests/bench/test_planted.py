"""The bench of planted violations reports missing and unexpected violations."""

from __future__ import annotations

import pytest

from tests.bench.planted import differences, main
from tests.bench.processes import size_of
from tests.pipeline.conftest import SETTINGS, SLOW
from tests.pipeline.support.planted import Planted


def test_planted_report_names_missing_unexpected_and_duplicate_rows() -> None:
    one, two, three = (Planted("prefetch", number, 7) for number in (1, 2, 3))
    assert differences([one, two], [one, two]) == []
    assert differences([one, two], [two, two, three]) == [
        f"missing: {one}",
        f"unexpected: {three}",
        f"more than once: {two}",
    ]


def test_sizes_are_read_as_people_write_them() -> None:
    assert [size_of(text) for text in ("2GB", "1.5MB", "3kB", "17")] == [2_000_000_000, 1_500_000, 3000, 17]
    with pytest.raises(ValueError, match="much"):
        size_of("much")


@SLOW
def test_the_command_finds_all_of_a_few_megabytes() -> None:
    assert main(["3MB", *(f"--conf={name}={value}" for name, value in SETTINGS.items())]) == 0
