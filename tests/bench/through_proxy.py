"""The suites through the proxy: ``python -m tests.bench.through_proxy [TARGET...] [-- ARGUMENT...]``.

Each target (``embedded``, ``amqp``, or the path of a real server; all that this machine has, by default) is
verified directly and through proxies, one before each of its configurations, all recording strictly. Prints
every check whose outcome differs; exit code 1 if any does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from plumbline.cli.embedded_brokers import EMBEDDED_AMQP, configurations
from plumbline.cli.start_target import TargetChoice, choose_target
from plumbline.conformance.targets.urls import AnyUrl, NatsUrl
from plumbline.proxy.record import RecordingProxy, recorded
from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.nats.nats_server import ServerBinary, real_servers
from tests.bench.command_line import parser_of

MAIN = "main"


@contextmanager
def started(target: str) -> Iterator[dict[str, str]]:
    """Name of a configuration to its URL; ``main`` is the one without a name."""
    embedded = {"embedded": TargetChoice(), EMBEDDED_AMQP: TargetChoice(url=EMBEDDED_AMQP)}
    choice = embedded.get(target, TargetChoice(server=target))
    with choose_target(choice, configurations()) as served:
        yield {name: whole(url) for name, url in {MAIN: served.url, **served.variants}.items()}


def whole(url: AnyUrl) -> str:
    """The URL with its credentials, which ``str`` leaves out."""
    credentials = (url.user, url.password, url.token if isinstance(url, NatsUrl) else None)
    login = ":".join(quote(part, safe="") for part in credentials if part)
    parts = urlsplit(str(url))
    return urlunsplit(parts._replace(netloc=f"{login}@{url.address}" if login else url.address))


@contextmanager
def proxied(
    urls: Mapping[str, str], folder: Path, *, strict: bool = True
) -> Iterator[tuple[dict[str, str], dict[str, RecordingProxy]]]:
    """A recording proxy before each of these; the URLs with the proxies' addresses, and the proxies."""
    with ExitStack() as running:
        proxies = {
            name: running.enter_context(recorded(url, folder / name, strict=strict))
            for name, url in urls.items()
        }
        yield {name: moved(url, proxies[name].url) for name, url in urls.items()}, proxies


def moved(url: str, to: str) -> str:
    """``url`` with its credentials and path, at another address."""
    parts = urlsplit(url)
    userinfo, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{userinfo}{at}{urlsplit(to).netloc}"))


def outcomes(urls: Mapping[str, str], *arguments: str) -> dict[str, tuple[str, str]]:
    """What became of each check: its outcome and its message."""
    with tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        written = Path(folder, "result.json")
        named = [f"--variant={name}={url}" for name, url in urls.items() if name != MAIN]
        command = [sys.executable, "-m", "plumbline", "verify", urls[MAIN], *named, "--json", str(written)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if not written.exists():
            raise RuntimeError(done.stdout + done.stderr)
        result = json.loads(written.read_text())
    return {check["id"]: (check["outcome"], check["message"]) for check in result["checks"]}


def compare(target: str, arguments: Sequence[str] = ()) -> list[str]:
    """The checks that end otherwise through a proxy, a line each."""
    with started(target) as urls, tempfile.TemporaryDirectory(prefix="plumbline-bench-") as folder:
        began = time.perf_counter()
        direct = outcomes(urls, *arguments)
        between = time.perf_counter()
        with proxied(urls, Path(folder)) as (moved_urls, proxies):
            through = outcomes(moved_urls, *arguments)
        ended = time.perf_counter()
        recorded_bytes = sum(proxy.counters.recorded for proxy in proxies.values())
    passed = sum(outcome == "passed" for outcome, _ in through.values())
    print(
        f"{target}: {len(direct)} checks; directly {between - began:.1f} s, through the proxy "
        f"{ended - between:.1f} s, {passed} passed, {recorded_bytes / 1e6:.1f} MB recorded",
        flush=True,
    )
    return [
        f"  {check}: directly {outcome} ({why}), through the proxy {through[check][0]} ({through[check][1]})"
        for check, (outcome, why) in direct.items()
        if through[check][0] != outcome
    ]


def here() -> list[str]:
    """All targets that this machine has."""
    real = [*real_servers(), rabbitmq_server()]
    return ["embedded", "amqp", *(str(one.path) for one in real if isinstance(one, ServerBinary))]


def main() -> int:
    """Prints what differs."""
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    parser = parser_of(__doc__)
    parser.usage = "%(prog)s [-h] [TARGET...] [-- ARGUMENT...]"
    parser.epilog = "example: python -m tests.bench.through_proxy embedded -- --select 'JS-PULL-*'"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to verify: all that there is")
    targets = parser.parse_args(given[:at]).targets
    differing = 0
    for target in targets or here():
        for line in compare(target, given[at + 1 :]):
            differing += 1
            print(line)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
