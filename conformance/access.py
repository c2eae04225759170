"""How to get in at the URL of a run, besides what the URL says."""

from __future__ import annotations

from msgspec import Struct

from plumbline.conformance.urls import AnyUrl
from plumbline.errors import UsageProblem
from plumbline.tls import TlsOptions, context_of


class Access(Struct, frozen=True):
    """What options of the command line say, for the URL and for those of variants."""

    tls: TlsOptions = TlsOptions()

    def applied_to(self, url: AnyUrl) -> AnyUrl:
        """The URL with all of it. Raises ``UsageProblem`` for what it cannot use, and ``TlsError``."""
        if url.tls is None:
            self._refuse(self.tls.flags, "a URL that begins with tls:// or amqps://")
            return url
        context_of(self.tls)
        return url.with_tls(self.tls)

    def applied_to_variant(self, url: AnyUrl) -> AnyUrl:
        """The URL of a variant, which has a login of its own, with what it can use."""
        return url.with_tls(self.tls)

    def require_none(self) -> None:
        """Raises ``UsageProblem`` if there is an option: Plumbline starts the server itself."""
        self._refuse(self.tls.flags, "a URL")

    def _refuse(self, flags: tuple[str, ...], needed: str) -> None:
        if flags:
            option = flags[0].partition("=")[0]
            raise UsageProblem(f"{option} needs {needed}")
