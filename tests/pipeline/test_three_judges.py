"""The same traffic judged by ``record --live``, by ``gate`` and by what Spark runs for ``judge``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow.compute as pc
import pytest

from plumbline.conformance.clients import client_under_test
from plumbline.monitors import Side, Violation
from tests.pipeline.support.three_judges import PATIENCE_S, played, untimed
from tests.pipeline.test_flows import staged, violations


def judged(captures: Path) -> list[Violation]:
    """What Spark's workers find, with the recorder's numbers for connections."""
    rows = staged([str(captures)], keeps_payloads=True)
    openings = rows.filter(pc.equal(rows["op"], "opened"))
    numbers = dict(zip(openings["connection"].to_pylist(), openings["recorded"].to_pylist(), strict=True))

    def place(row: dict[str, int | str]) -> dict[str, object]:
        return {
            "connection": str(numbers[row["connection"]]), "index": row["number"], "at": row["time_ns"],
            "text": row["text"],
        }  # fmt: skip

    found = [
        {**row, "place": place(row), "earlier": [place(one) for one in row["earlier"]]}
        for row in violations(rows)
    ]
    return msgspec.convert(found, list[Violation])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["nats", "amqp"])
def test_judge_record_live_and_gate_find_the_same(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_under_test, "HELLO_WITHIN_S", PATIENCE_S)
    session = played(protocol, tmp_path)
    found = judged(tmp_path)
    assert {one.side for one in found} == {Side.CLIENT, Side.SERVER}
    assert session.live.partition("\n1 connection, ")[0] == "\n".join(map(str, found))
    assert list(map(untimed, session.wire)) == list(map(untimed, found))
    # The verdict of the gate is about the client.
    assert list(map(untimed, session.gate)) == [untimed(one) for one in found if one.side is Side.CLIENT]
