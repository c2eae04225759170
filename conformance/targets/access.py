"""How to get in at the URL of a run, besides what the URL says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plumbline.conformance.nats.login import NatsLogin
from plumbline.conformance.targets.urls import MECHANISMS, AmqpUrl, AnyUrl, NatsUrl
from plumbline.errors import UsageProblem
from plumbline.tls import TlsOptions, context_of


class Access(Struct, frozen=True):
    """What options of the command line say, for the URL and for those of variants."""

    tls: TlsOptions = TlsOptions()
    nkey: Path | None = None
    creds: Path | None = None
    inbox_prefix: str | None = None
    js_domain: str | None = None
    js_api_prefix: str | None = None
    auth_mechanism: str | None = None

    def applied_to(self, url: AnyUrl) -> AnyUrl:
        """The URL with all of it. Raises ``UsageProblem`` for what it cannot use, and ``TlsError``."""
        if url.tls is None:
            self._refuse(self.tls.flags, "a URL that begins with tls://, wss:// or amqps://")
        else:
            context_of(self.tls)
        url = url.with_tls(self.tls)
        if isinstance(url, NatsUrl):
            self._refuse(self._of_amqp, "a URL of an AMQP server")
            return self._with_login(url)
        self._refuse(self._of_nats, "a URL of a NATS server")
        return self._with_mechanism(url)

    def _with_mechanism(self, url: AmqpUrl) -> AmqpUrl:
        if self.auth_mechanism is None:
            return url
        name = self.auth_mechanism.upper()
        if name not in MECHANISMS:
            raise UsageProblem(f"--auth-mechanism {name}: known are {', '.join(MECHANISMS)}")
        if name == "EXTERNAL" and self.tls.certificate is None:
            raise UsageProblem("--auth-mechanism EXTERNAL needs --tls-cert, the certificate that logs in")
        return replace(url, mechanism=name)

    @property
    def _of_amqp(self) -> tuple[str, ...]:
        return (f"--auth-mechanism={self.auth_mechanism}",) if self.auth_mechanism is not None else ()

    def _with_login(self, url: NatsUrl) -> NatsUrl:
        if self.nkey is not None and self.creds is not None:
            raise UsageProblem("give only one of --nkey and --creds")
        if self.nkey is not None:
            url = url.with_login(NatsLogin.of_nkey_file(self.nkey))
        if self.creds is not None:
            url = url.with_login(NatsLogin.of_creds_file(self.creds))
        if url.login is not None:
            url.login.require_signatures()
        if self.inbox_prefix is not None:
            _require_subject("--inbox-prefix", self.inbox_prefix)
            url = replace(url, inbox_prefix=self.inbox_prefix)
        if self.js_domain is not None and self.js_api_prefix is not None:
            raise UsageProblem("give only one of --js-domain and --js-api-prefix")
        if self.js_domain is not None:
            _require_subject("--js-domain", self.js_domain)
            url = replace(url, api_prefix=f"$JS.{self.js_domain}.API")
        if self.js_api_prefix is not None:
            _require_subject("--js-api-prefix", self.js_api_prefix)
            url = replace(url, api_prefix=self.js_api_prefix)
        return url

    @property
    def _of_nats(self) -> tuple[str, ...]:
        given = {
            "--nkey": self.nkey,
            "--creds": self.creds,
            "--inbox-prefix": self.inbox_prefix,
            "--js-domain": self.js_domain,
            "--js-api-prefix": self.js_api_prefix,
        }
        return tuple(f"{option}={value}" for option, value in given.items() if value is not None)

    def applied_to_variant(self, url: AnyUrl) -> AnyUrl:
        """The URL of a variant, which has a login of its own, with what it can use."""
        return url.with_tls(self.tls)

    def require_none(self) -> None:
        """Raises ``UsageProblem`` if there is an option: Plumbline starts the server itself."""
        self._refuse((*self.tls.flags, *self._of_nats, *self._of_amqp), "a URL")

    def _refuse(self, flags: tuple[str, ...], needed: str) -> None:
        if flags:
            option = flags[0].partition("=")[0]
            raise UsageProblem(f"{option} needs {needed}")


def _require_subject(option: str, prefix: str) -> None:
    """Raises ``UsageProblem`` unless subjects may begin with it."""
    if not re.fullmatch(r"[^\s.*>\x00-\x1f]+(\.[^\s.*>\x00-\x1f]+)*", prefix):
        raise UsageProblem(f"{option} {prefix!r}: expected tokens of a subject, such as _INBOX_alice")


def access_of(
    tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, tls_name: str | None, **others: Any
) -> Access:
    """What the options of ``plumbline.access_options`` say, each by its name."""
    whole: dict[str, Any] = {
        name: _whole(value) if isinstance(value, Path) else value for name, value in others.items()
    }
    return Access(tls=tls_options_of(tls_ca, tls_cert, tls_key, tls_name), **whole)


def tls_options_of(
    tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, tls_name: str | None
) -> TlsOptions:
    """What the options for TLS say."""
    return TlsOptions(_whole(tls_ca), _whole(tls_cert), _whole(tls_key), tls_name or "")


def _whole(path: Path | None) -> Path | None:
    """Independent of the working folder: reports show how to repeat a check."""
    return path.resolve() if path else None
