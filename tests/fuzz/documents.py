"""Texts that users and strangers write: traces, configurations, waivers, tables of servers, faults, filters.

Each is read, or refused with the one error that its reader promises; the error says where.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plumbline.captures.filters import FilterError
from plumbline.captures.filters import parse as parse_filter
from plumbline.conformance.check import Check
from plumbline.conformance.targets.variants import VARIANTS, VariantsError, variants
from plumbline.conformance.waivers import WaiverError, load_waivers
from plumbline.proxy.faults.language import FaultError, parse_fault
from plumbline.reference_broker.nats.config import Config, ConfigError
from plumbline.reference_broker.nats.config_file import load as load_config
from plumbline.reference_broker.nats.drop_in.language import parse as parse_language
from plumbline.reference_broker.nats.drop_in.settings import settings
from plumbline.servers.targets import TARGETS as SERVERS
from plumbline.servers.targets import Software, TargetError, software
from tests.conformance.trace.test_fuzz import SAMPLE, TABLED, read_all
from tests.fuzz.target import Target

TRACES = Path(__file__).parents[2] / "conformance" / "traces"
CHECKS = [
    Check("core::ping", "ping", ("CORE-001",), print),
    Check("pull::one", "one", ("JS-PULL-001",), print),
]
CONFIG = (
    b'{"listen":"127.0.0.1:4222","authorization":{"users":[{"user":"a","password":"b","permissions":'
    b'{"publish":["a.>"],"subscribe":{"allow":"b","deny":["c"]}}}],"timeout":"2s"},"jetstream":'
    b'{"store_dir":"x","sync_interval":"always"},"max_payload":1000,"level":"2.10","ping_interval":1}'
)
SERVER_CONFIG = b"""
A = 4222 # a variable
listen: "127.0.0.1:4222"; max_connections $A; max_payload 8MB
jetstream { store_dir: 'x', max_mem: 1GiB, sync_interval: "2m" } // a comment
websocket { port: -1, no_tls: true }
authorization { timeout: 1.5, default_permissions { publish: [a, "b.>"], allow_responses: { max: 2 } } }
accounts { B { users: [ {user: b, password: "\x41\tz"} ], exports: [ {service: "o.*", accounts: [C]} ] }
  C { jetstream: enabled, imports: [ {service: {account: B, subject: "o.*"}, to: "p.$1"} ] } }
no_auth_user: b
"""
WAIVER = (
    b'[[waiver]]\nrequirement = "CORE-*"\nreason = "why"\nlink = "https://example.org"\n'
    b"expires = 2030-01-31\n"
    b'versions = ">=2.9, <2.11"\ncontains = "text"\n'
)


def trace(data: bytes) -> None:
    """A file of traces. ``read_all`` requires that each problem has its place."""
    read_all(data.decode("utf-8", "surrogateescape"))


def _file(
    read: Callable[[Path], Any], promised: type[Exception], check: Callable[[Any], None]
) -> Callable[[bytes], None]:
    """A target for a function that takes the path of a file."""
    folder = Path(tempfile.mkdtemp(prefix="plumbline-fuzz-"))
    path = folder / "given"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        try:
            found = read(path)
        except promised as error:
            refused = str(error)
        else:
            check(found)
            return
        assert path.name in refused, "the error does not name the file"

    return run


def nats_server_config(data: bytes) -> None:
    """The configuration language of nats-server, and what the values mean."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = settings(parse_language(text, "given", environment={"A": "$B", "B": "1"}), {})
    except ConfigError:
        return
    assert 0 <= found.config.port <= 65535


def _is_config(found: Any) -> None:
    assert isinstance(found, Config)


def _are_software(found: Any) -> None:
    assert all(isinstance(one, Software) for one in found.values())


def lines(data: bytes) -> None:
    """A fault and a filter, from the same text."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        fault = parse_fault(text)
    except FaultError:
        pass
    else:
        assert fault.share >= 0
        assert min(fault.time, fault.jitter, fault.size, fault.every, fault.only) >= 0
    try:
        parse_filter(text)
    except FilterError:
        return


def _traces() -> list[bytes]:
    files = sorted(TRACES.rglob("*.trace"))
    return [
        SAMPLE.encode(),
        TABLED.encode(),
        *(path.read_bytes() for path in files[:: max(len(files) // 25, 1)]),
    ]


def _words(*texts: str) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(word.encode() for text in texts for word in text.split()))


JSON_WORDS = (
    b"\xc2\xb2",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b'""',
    b"[]",
    b"{}",
    b"[" * 50,
    b'{"a":' * 50,
    b"\xff",
    b"99999999999999999999",
)
TOML_WORDS = (b"[[", b"]]", b"=", b'"""', b"'''", b"1979-05-27", b"nan", b"{", b"}", b"\xff", b"[" * 50, b"#")
TARGETS = [
    Target(
        "traces",
        trace,
        _traces,
        _words(SAMPLE, 'within cases {:time} {a:int} \\| \\" in any order end given closed'),
        700,
    ),
    Target(
        "broker-config",
        _file(load_config, ConfigError, _is_config),
        lambda: [CONFIG, b"{}"],
        (*JSON_WORDS, *_words(CONFIG.decode().replace('"', " ").replace(":", " "))),
        1000,
    ),
    Target(
        "nats-server-config",
        nats_server_config,
        lambda: [SERVER_CONFIG, CONFIG],
        (b"include x", b"$A", b"(\n\n)\n", b"[" * 150, b"{" * 150, *_words(SERVER_CONFIG.decode())),
        1000,
    ),
    Target(
        "waivers",
        _file(lambda path: load_waivers(path, CHECKS), WaiverError, lambda found: None),
        lambda: [WAIVER, WAIVER * 2],
        (*TOML_WORDS, *_words(WAIVER.decode())),
        600,
    ),
    Target(
        "server-tables",
        _file(software, TargetError, _are_software),
        lambda: [SERVERS.read_bytes()[:2000]],
        TOML_WORDS,
        600,
    ),
    Target(
        "variants",
        _file(variants, VariantsError, lambda found: None),
        lambda: [VARIANTS.read_bytes()[:2000]],
        TOML_WORDS,
        500,
    ),
    Target(
        "fault-lines",
        lines,
        lambda: [
            b"drop PUB every 3rd on upstream",
            b"latency 50ms +-5ms with 20%",
            b"bandwidth 10kb on downstream",
            b"delay 1ms CONNECT",
            b"rewrite INFO set max_payload=5",
            b"op = MSG and subject ~ a.*",
            b"duplicate +ACK where subject = a",
            b"slice 10 delay 5us",
            b"not (size > 5 or reply exists)",
        ],
        _words(
            "drop delay duplicate reorder rewrite latency bandwidth slice timeout reset limit slow_close on "
            "upstream downstream every 1st 2nd with % where op subject = != ~ < > and or not ( ) set PUB "
            "+ACK basic.ack ms us 1e9"
        ),
        4000,
    ),
]
