"""Defects that are rows of TOML: when they apply, and what they do to the fields of a message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plumbline.reference_broker.nats.defects.rows import OnInfo, read
from plumbline.wire.nats import Decoder, Msg, Sender
from tests.reference_broker.virtual import Client, Virtual

STREAM = '{"name": "S", "subjects": ["s.*"], "storage": "memory", "max_msgs": 3}'
ROW = '[one]\nbreaks = ["JS-API-001"]\nsummary = "One is wrong."\n'


def with_row(text: str) -> Client:
    """A client of a broker that has the stream S, and then gets the defect."""
    virtual = Virtual(jetstream=True)
    client = virtual.client()
    client.send("SUB answers 1")
    request(client, "STREAM.CREATE.S", STREAM)
    (defect,) = read(ROW + text)
    defect.alter(virtual.broker)
    return client


def request(client: Client, api: str, body: str = "") -> dict[str, Any]:
    """The answer to a request to the API."""
    (answer,) = messages(client.send(f"PUB $JS.API.{api} answers {len(body)}\n{body}"))
    fields: dict[str, Any] = msgspec.json.decode(answer.payload)
    return fields


def messages(client: Client) -> list[Msg]:
    return [one for one in Decoder(Sender.SERVER).feed(client.take_bytes()) if isinstance(one, Msg)]


def test_an_answer_has_other_fields() -> None:
    client = with_row(
        """
        kind = "answer"
        api = "stream_info"
        set = { "config.max_msgs" = 7, "no.such.object" = 1 }
        default = { "config.max_msg_size" = 1, "config.colour" = "red" }
        add = { "state.messages" = 2, "state.no_such_number" = 1 }
        remove = ["created", "state.no_such_field"]
        """
    )
    answer = request(client, "STREAM.INFO.S")
    assert answer["config"]["max_msgs"] == 7
    assert answer["config"]["max_msg_size"] == -1
    assert answer["config"]["colour"] == "red"
    assert answer["state"]["messages"] == 2
    assert "created" not in answer
    assert "no" not in answer
    assert "created" in request(client, "STREAM.CREATE.S", STREAM), "an answer of another type"


def test_an_answer_about_another_stream_is_as_it_was() -> None:
    client = with_row('kind = "answer"\napi = "stream_info"\nstream = "KV_*"\nremove = ["created"]')
    assert "created" in request(client, "STREAM.INFO.S")


def test_a_request_has_other_fields() -> None:
    client = with_row('kind = "request"\napi = "stream_create"\nset = { max_msgs = 9 }')
    answer = request(client, "STREAM.CREATE.T", '{"name": "T", "subjects": ["t"], "max_msgs": 2}')
    assert answer["config"]["max_msgs"] == 9


def test_an_error_has_another_code_and_an_answer_without_error_is_as_it_was() -> None:
    client = with_row(
        'kind = "error"\napi = "stream_info"\nwhen = { err_code = 10059 }\nset = { err_code = 10014 }'
    )
    assert request(client, "STREAM.INFO.NONE")["error"]["err_code"] == 10014
    assert "error" not in request(client, "STREAM.INFO.S")


def test_a_request_is_refused_and_changes_nothing() -> None:
    client = with_row(
        """
        kind = "refusal"
        api = "stream_update"
        error = "STREAM_INVALID_CONFIG"
        reason = "no more"
        above = { max_msgs = 4 }
        """
    )
    error = request(client, "STREAM.UPDATE.S", STREAM.replace("3", "5"))["error"]
    assert error == {"code": 500, "err_code": 10052, "description": "no more"}
    assert request(client, "STREAM.INFO.S")["config"]["max_msgs"] == 3
    assert request(client, "STREAM.UPDATE.S", STREAM.replace("3", "4"))["config"]["max_msgs"] == 4


def test_a_direct_get_has_other_fields() -> None:
    client = with_row('kind = "direct get"\nstream = "D"\nadd = { seq = 1 }')
    request(client, "STREAM.CREATE.D", '{"name": "D", "subjects": ["d"], "allow_direct": true}')
    client.send("PUB d 3\none\nPUB d 3\ntwo").take()
    body = '{"seq": 1}'
    (answer,) = client.ask(f"PUB $JS.API.DIRECT.GET.D answers {len(body)}\n{body}")
    assert answer.endswith("two")


def test_an_event_has_other_fields() -> None:
    client = with_row(
        'kind = "event"\nsubject = "$JS.EVENT.ADVISORY.STREAM.*.S"\nset = { action = "frobnicate" }'
    )
    client.send("SUB $JS.EVENT.ADVISORY.STREAM.> 2")
    client.send("PUB $JS.API.STREAM.DELETE.S 0\n")
    (event,) = messages(client)
    assert msgspec.json.decode(event.payload)["action"] == "frobnicate"


def test_an_event_is_not_published() -> None:
    client = with_row('kind = "event"\nsubject = "$JS.EVENT.ADVISORY.STREAM.DELETED.>"\ndrop = true')
    client.send("SUB $JS.EVENT.ADVISORY.STREAM.> 2")
    assert client.ask("PUB $JS.API.STREAM.DELETE.S 0\n") == []


def test_info_has_other_fields() -> None:
    virtual = Virtual()
    OnInfo(breaks=("CORE-004",), summary="", set={"proto": 0}).alter(virtual.broker)
    (info,) = virtual.stranger().infos
    assert info["proto"] == 0


FIELDS = {"name": "S", "size": 3, "inner": {"on": True}, "list": []}


@pytest.mark.parametrize(
    ("conditions", "applies"),
    [
        ({}, True),
        ({"present": ("inner.on",)}, True),
        ({"present": ("inner.off",)}, False),
        ({"present": ("name.on",)}, False),
        ({"absent": ("inner.off",)}, True),
        ({"absent": ("inner",)}, False),
        ({"when": {"inner.on": True, "size": 3}}, True),
        ({"when": {"inner.on": True, "size": 4}}, False),
        ({"when": {"name": ["R", "S"]}}, True),
        ({"when": {"missing": "S"}}, False),
        ({"unless": {"name": "S"}}, False),
        ({"unless": {"name": ["R", "S"]}}, False),
        ({"unless": {"missing": "S"}}, True),
        ({"above": {"size": 2}}, True),
        ({"above": {"size": 3}}, False),
        ({"above": {"missing": 0}}, False),
        ({"below": {"size": 4}}, True),
        ({"below": {"size": 3}}, False),
        ({"below": {"name": 9}}, False),
        ({"contains": {"name": "S"}}, True),
        ({"contains": {"name": "T"}}, False),
    ],
)
def test_conditions(conditions: dict[str, Any], applies: bool) -> None:
    row = OnInfo(breaks=("CORE-001",), summary="", **conditions)
    assert row.applies(FIELDS) is applies


def test_the_conditions_of_an_answer_can_be_about_the_request() -> None:
    client = with_row('kind = "answer"\napi = "stream_info"\npresent = ["request.x"]\nremove = ["created"]')
    assert "created" in request(client, "STREAM.INFO.S")
    assert "created" in request(client, "STREAM.INFO.S", "{}")
    assert "created" not in request(client, "STREAM.INFO.S", '{"x": 1}')


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('kind = "info"\nremoves = ["go"]', "unknown field `removes`"),
        ('kind = "information"', "Invalid value 'information'"),
        ('kind = "answer"', "missing required field `api`"),
        ('kind = "info"\nsubject = "a"', "unknown field `subject`"),
        ('kind = "info"\nremove = "go"', "Expected `array`"),
    ],
)
def test_a_row_that_is_wrong_is_an_error(row: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        read(ROW + row)


def test_an_error_that_there_is_not_is_an_error() -> None:
    with pytest.raises(AttributeError, match="NO_SUCH_ERROR"):
        with_row('kind = "refusal"\napi = "stream_info"\nerror = "NO_SUCH_ERROR"')


def test_a_row_of_jetstream_needs_jetstream() -> None:
    (defect,) = read(ROW + 'kind = "info"')
    assert defect.needs == ("jetstream",)
    (defect,) = read(ROW + 'kind = "info"\nneeds = []')
    assert defect.needs == ()
