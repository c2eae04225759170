"""Random programs: a stream, a consumer, and commands upon them, as Hypothesis strategies.

The weights are the only judgement here: common things often, so that programs get somewhere, and rare
settings seldom, each alone. All durations are far enough apart that a busy server keeps their order.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
from hypothesis import strategies as st

from plumbline.conformance.explore.commands import (
    CONSUMERS,
    STREAMS,
    TOKENS,
    Acknowledge,
    AcknowledgeAndPull,
    Command,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteMessage,
    DeleteStream,
    Describe,
    GetMessage,
    Leave,
    Listen,
    Publish,
    Pull,
    Purge,
    Restart,
    Wait,
)

MS = 1_000_000  # nanoseconds
HEARTBEAT = 1000 * MS
MAX_COMMANDS = 32
PARTS = 4

Program = tuple[Command, ...]


def programs(
    *, timed: bool = True, restarting: bool = False, pushing: bool = False
) -> st.SearchStrategy[Program]:
    """A stream and a consumer, then commands. Without ``timed`` nothing waits, and a trial is quick.

    ``restarting``: the server is restarted among them, with one stream in files and the other in memory.
    ``pushing``: most consumers are push consumers, and somebody listens to them or does not.
    """
    first = st.builds(CreateStream, st.just(STREAMS[0]), _weighted({}, times=1) | _stream_settings())
    second = st.builds(
        CreateConsumer,
        st.just(STREAMS[0]),
        st.just(CONSUMERS[0]),
        st.just({"ack_policy": "explicit"}) | _consumer_settings(STREAMS[0], timed=timed, pushing=pushing),
        st.just("a" if pushing else ""),
    )
    stored = st.lists(st.builds(Publish, st.just(STREAMS[0]), _TOKEN), max_size=3)
    # Hypothesis makes short lists: several of them in a row get further.
    part = st.lists(_command(timed=timed, pushing=pushing), max_size=MAX_COMMANDS // PARTS)
    if restarting:
        restart = st.just([Restart()])
        program = st.tuples(first, second, stored, part, part, restart, part, _weighted([], [Restart()]))
        return program.map(
            lambda parts: _with_file_storage((parts[0], parts[1], *chain.from_iterable(parts[2:])))
        )
    return st.tuples(first, second, stored, *[part] * PARTS).map(
        lambda parts: (parts[0], parts[1], *chain.from_iterable(parts[2:]))
    )


def _with_file_storage(program: Program) -> Program:
    """With all of the first stream in files."""
    return tuple(
        msgspec.structs.replace(command, settings={**command.settings, "storage": "file"})
        if isinstance(command, CreateStream) and command.stream == STREAMS[0]
        else command
        for command in program
    )


def _weighted(common: Any, *rare: Any, times: int = 4) -> st.SearchStrategy[Any]:
    return st.sampled_from([*[common] * times, *rare])


_STREAM = _weighted(*STREAMS, times=7)
_CONSUMER = _weighted(*CONSUMERS, times=4)
_TOKEN = _weighted(*TOKENS, times=2)
_SEQ = st.integers(1, 5)
_AGO = _weighted(0, 1, 2, 3)
_INBOX = _weighted("a", "b")


def _settings(choices: dict[str, tuple[Any, ...]], max_settings: int) -> st.SearchStrategy[dict[str, Any]]:
    """A few settings with one of their values each."""
    one = st.sampled_from([(key, value) for key, values in choices.items() for value in values])
    return st.lists(one, max_size=max_settings).map(dict)


def _stream_settings() -> st.SearchStrategy[dict[str, Any]]:
    return _settings(
        {
            "retention": ("workqueue", "interest"),
            "max_msgs": (2, 3),
            "max_msgs_per_subject": (1, 2),
            "discard": ("new",),
            "max_msg_size": (4,),
            "deny_purge": (True,),
            "deny_delete": (True,),
            "max_consumers": (1,),
            "first_seq": (5,),
        },
        2,
    )


def _consumer_settings(
    stream: str, *, timed: bool, pushing: bool = False
) -> st.SearchStrategy[dict[str, Any]]:
    choices: dict[str, tuple[Any, ...]] = {
        "ack_policy": ("all", "none"),
        "deliver_policy": ("last", "new", "last_per_subject"),
        "opt_start_seq": (2,),
        "filter_subject": (f"{stream}.a", f"{stream}.*"),
        "max_deliver": (1, 2),
        "max_ack_pending": (1, 2),
        "headers_only": (True,),
    }
    if pushing and timed:
        choices |= {"idle_heartbeat": (HEARTBEAT,), "flow_control": (True,)}
    elif not pushing:
        choices |= {"max_waiting": (1, 2), "max_batch": (2,)}
    if timed:
        choices |= {"ack_wait": (400 * MS,), "backoff": ([400 * MS, 1200 * MS],)}
    return _settings(choices, 2).map(lambda settings: _consistent_settings(settings, stream))


def _consistent_settings(settings: dict[str, Any], stream: str) -> dict[str, Any]:
    """What would only be refused is rare enough already: each start gets what belongs to it."""
    whole = {"ack_policy": "explicit", **settings}
    if "opt_start_seq" in whole:
        whole.setdefault("deliver_policy", "by_start_sequence")
    if whole.get("deliver_policy") == "last_per_subject":
        whole.setdefault("filter_subject", f"{stream}.>")
    if "flow_control" in whole:
        whole.setdefault("idle_heartbeat", HEARTBEAT)
    return whole


def _headers() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return _weighted(
        (),
        (("A", "1"),),
        (("Nats-Msg-Id", "1"),),
        (("Nats-Msg-Id", "2"),),
        (("Nats-Msg-Id", "1"), ("A", "1")),
        (("Nats-Expected-Last-Sequence", "1"),),
        (("Nats-Expected-Last-Subject-Sequence", "1"),),
        (("Nats-Expected-Last-Msg-Id", "1"),),
        (("Nats-Expected-Stream", "ORDERS"),),
        (("Nats-Expected-Stream", "EVENTS"),),
        times=9,
    )


def _pull_body(*, timed: bool) -> st.SearchStrategy[dict[str, Any]]:
    batch = st.integers(1, 4).map(lambda number: {"batch": number})
    how: list[dict[str, Any]] = [{"no_wait": True}, {"no_wait": True}, {}, {"expires": 30_000 * MS}]
    if timed:
        how += [{"expires": 600 * MS}, {"expires": 600 * MS, "no_wait": True}]
        how += [{"expires": 1000 * MS, "idle_heartbeat": 400 * MS}]
    return st.tuples(batch, st.sampled_from(how)).map(lambda parts: {**parts[0], **parts[1]})


def _acknowledgement(*, timed: bool) -> st.SearchStrategy[Command]:
    payloads = ["+ACK"] * 3 + ["", "-NAK", "-NAK", "+WPI", "+TERM", "+OK", "+ack"]
    if timed:
        payloads += ['-NAK {"delay":400000000}', "-NAK 400ms"]
    return st.one_of(
        st.builds(Acknowledge, _AGO, st.sampled_from(payloads)),
        st.builds(Acknowledge, _AGO, st.sampled_from(["+ACK", "+TERM"]), st.just(False)),
        st.builds(
            AcknowledgeAndPull, _AGO, st.sampled_from(["", "2", '{"batch":2}', '{"no_wait":true}']), _INBOX
        ),
    )


def _command(*, timed: bool, pushing: bool) -> st.SearchStrategy[Command]:
    """Every second one publishes, pulls or listens, every third acknowledges; few delete what there is."""
    publish = st.builds(Publish, _STREAM, _TOKEN, _headers(), _weighted(True, False, times=6))
    pull = st.builds(Pull, _STREAM, _CONSUMER, _pull_body(timed=timed), _INBOX)
    acknowledge = _acknowledgement(timed=timed)
    seldom: list[st.SearchStrategy[Command]] = [
        st.builds(CreateStream, _STREAM, _stream_settings(), st.booleans()),
        _STREAM.flatmap(
            lambda stream: st.builds(
                CreateConsumer, st.just(stream), _CONSUMER, _consumer_settings(stream, timed=timed)
            )
        ),
        st.builds(
            Purge,
            _STREAM,
            st.sampled_from([{}, {"keep": 1}, {"seq": 2}, {"seq": 3}, {"keep": 1, "seq": 2}]),
            _weighted(None, *TOKENS, times=2),
        ),
        st.builds(DeleteMessage, _STREAM, _SEQ),
        st.builds(GetMessage, _STREAM, seq=_SEQ),
        st.builds(GetMessage, _STREAM, last=_TOKEN),
        st.builds(GetMessage, _STREAM, seq=_SEQ, next=_TOKEN),
        st.builds(Describe, _STREAM, _weighted(None, *CONSUMERS, times=1)),
        st.builds(DeleteConsumer, _STREAM, _CONSUMER),
        st.builds(DeleteStream, _STREAM),
    ]
    waits = [st.builds(Wait, st.sampled_from([0.3, 0.6, 1.2]))] if timed else []
    if pushing:
        listen = st.builds(Listen, _STREAM, _CONSUMER, _INBOX)
        leave = st.builds(Leave, _STREAM, _CONSUMER, _INBOX)
        pushed = _STREAM.flatmap(
            lambda stream: st.builds(
                CreateConsumer,
                st.just(stream),
                _CONSUMER,
                _consumer_settings(stream, timed=timed, pushing=True),
                _INBOX,
            )
        )
        choices = [listen] * 9 + [leave] * 3 + [pushed] * 3 + [pull]
    else:
        choices = [pull] * 16
    weighed = [publish] * 16 + choices + [acknowledge] * 20 + seldom + seldom[:-2] + waits * 3
    return st.integers(0, len(weighed) - 1).flatmap(weighed.__getitem__)
