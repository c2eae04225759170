"""nats-py's own parser hears the same messages in the same bytes, however they are cut.

The bytes are generated here; in ``test_real_servers`` they come from a real server.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.nats import Decoder, Err, HMsg, Info, Msg, Ok, Operation, Ping, Pong, Sender
from tests.wire.segments import cuts
from tests.wire.strategies import header_fields, json_objects, payloads

witness = pytest.importorskip("tests.wire.nats_py_witness", reason="needs nats-py: pip install nats-py")

subjects = st.from_regex(r"[A-Za-z0-9$_*>-]{1,8}(\.[A-Za-z0-9_-]{1,8}){0,2}", fullmatch=True)
sids = st.integers(0, 10**6)
replies = st.none() | subjects
server_streams = st.lists(
    st.one_of(
        st.builds(Ping.make),
        st.builds(Pong.make),
        st.builds(Ok.make),
        st.builds(Info.make, json_objects),
        st.builds(Err.make, st.from_regex(r"[A-Za-z]{1,10}( [a-z]{1,5}){0,2}", fullmatch=True)),
        st.builds(Msg.make, subjects, sids, payloads, replies),
        st.builds(HMsg.make, subjects, sids, header_fields, payloads, replies),
    ),
    max_size=8,
)


@given(st.data(), server_streams)
def test_nats_py_decodes_same_operations(data: st.DataObject, operations: list[Operation]) -> None:
    stream = b"".join(operation.raw for operation in operations)
    heard = [witness.as_event(operation) for operation in Decoder(Sender.SERVER).feed(stream)]
    assert witness.heard_by_nats_py([stream]) == [event for event in heard if event != ("+OK",)]
    assert witness.heard_by_nats_py(data.draw(cuts(stream))) == witness.heard_by_nats_py([stream])
