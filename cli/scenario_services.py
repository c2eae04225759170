"""The brokers of gate and observe: reference brokers, each behind a proxy that watches or records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.cli.embedded_brokers import broker_alone

if TYPE_CHECKING:
    import ssl

    from plumbline.conformance.clients.scenario import BrokerSetup
    from plumbline.conformance.clients.scenario_broker import ScenarioBroker
    from plumbline.monitors import Violation
    from plumbline.proxy.record import RecordingProxy


class ScenarioServices:
    """The ``ScenarioServices`` of ``conformance.clients``: for each scenario a reference broker, watched.

    ``certificate``: what the proxy shows to clients, and the file of those who issued it; None: in the clear.
    """

    def __init__(self, certificate: tuple[ssl.SSLContext, Path] | None = None) -> None:
        self._certificate = certificate

    @contextmanager
    def scenario_broker(self, protocol: str, stage: BrokerSetup) -> Iterator[ScenarioBroker]:
        """Raises what the configuration, a defect or a fault says of itself if it is wrong."""
        from plumbline.conformance.clients.scenario import ServerTls
        from plumbline.interrupts import kept_from_children
        from plumbline.proxy.watching import watched

        with broker_alone(protocol, stage.defects, stage.options) as url, ExitStack() as running:
            certificate = self._certificate_for(stage, running)
            shown = None if stage.tls is ServerTls.CLEAR else certificate
            with kept_from_children():
                proxy = running.enter_context(watched(url, stage.faults, shown))
            proxy.authority = certificate[1] if certificate else None
            yield proxy

    def _certificate_for(self, stage: BrokerSetup, running: ExitStack) -> tuple[ssl.SSLContext, Path] | None:
        """Of the run, or one of an authority that ends with the scenario. Raises ``Unsupported``."""
        import tempfile

        from plumbline.conformance.clients.scenario import ServerTls
        from plumbline.conformance.outcomes import Unsupported
        from plumbline.proxy.tls.certificates import Flaw, generated
        from plumbline.tls import TlsError

        if stage.tls is ServerTls.AS_THE_RUN:
            return self._certificate
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="plumbline-")))
        try:
            flaw = None if stage.tls in (ServerTls.TRUSTED, ServerTls.CLEAR) else Flaw(stage.tls.value)
            return generated(folder, (), flaw)
        except TlsError as error:
            raise Unsupported(f"a server with TLS is wanted; {error}") from None

    @contextmanager
    def observe(self, faults: Sequence[str], capture: Path | None) -> Iterator[RecordedBrokers]:
        """Reference brokers, each behind a proxy that records, with monitors that follow the record."""
        import tempfile

        from plumbline.captures.judging import RecordingJudge
        from plumbline.errors import UsageProblem
        from plumbline.proxy.record import recorded

        observed = RecordedBrokers()
        with ExitStack() as running:
            folder = capture or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="plumbline-")))
            judging = running.enter_context(ExitStack())  # ends after the proxies have
            try:
                for protocol in ("nats", "amqp"):
                    url = running.enter_context(broker_alone(protocol))
                    where = url.partition("://")[2].rpartition("@")[2].partition("/")[0]
                    plain = f"{protocol}://{where}"
                    proxy = running.enter_context(recorded(plain, folder / protocol, faults=faults))
                    judge = RecordingJudge(proxy.files.path, protocol, observed.violations.append)
                    judge.start()
                    judging.callback(judge.end)
                    observed.proxies.append(proxy)
                    observed.urls[protocol] = url.replace(where, str(proxy.relay.address))
            except OSError as error:
                raise UsageProblem(str(error)) from None
            yield observed


class RecordedBrokers:
    """The ``RecordedBrokers`` of ``conformance.clients.observe``."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.violations: list[Violation] = []
        self.proxies: list[RecordingProxy] = []

    @property
    def connections(self) -> int:
        return sum(proxy.counters.accepted for proxy in self.proxies)
