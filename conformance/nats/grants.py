"""What the login of a run may do on the target: JetStream, storage, limits, subjects.

A check that needs more than that ends as unsupported, in one sentence that names the missing grant. The
limits are read once for each run (``$JS.API.INFO``); a refusal on the wire is evidence only if the account
shows the limit that it names, so a server that refuses without such a limit is judged as before.
Sources: docs.nats.io, "JetStream wire API Reference" (account info), "Authorization"; ADR-7 for the codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from plumbline.verdicts import WireLine
from plumbline.wire.errors import ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats.jetstream import ApiError

NO_JETSTREAM = {10039, 10076}  # not enabled for the account; not enabled at all
MAX_BYTES = 16 * 1024 * 1024  # of a stream, where the account demands that one says it; fits every check
# Which limit of the account an error is about (server/errors.json of nats-server).
LIMIT_OF: Mapping[int, tuple[str, str]] = {
    10028: ("max_memory", "memory"),
    10047: ("max_storage", "file storage"),
    10027: ("max_streams", "streams"),
    10026: ("max_consumers", "consumers"),
    10122: ("memory_max_stream_bytes", "bytes of a stream"),
}
MAX_BYTES_REQUIRED = 10113
_VIOLATION = re.compile(r"-ERR 'Permissions Violation for (\w+) to (.*)'", re.IGNORECASE)
# No answer shows the limits of a server; its refusal names them ("... exceeds system limit of 500").
_SERVER_LIMIT = re.compile(rb'"description": ?"([^"]*(?:server|system) limit of [^"]*)"')
_ERR_CODE = re.compile(rb'"err_code": ?(\d+)')


class Grants(Struct, frozen=True):
    """``no_jetstream``: the refusal of the account info, empty if it was answered. ``limits``: those of the
    account, as its info shows them; empty if it was not asked."""

    no_jetstream: str = ""
    limits: dict[str, Any] = {}

    @property
    def storage(self) -> str:
        """For streams that do not need a certain one: files if there may be none in memory."""
        return "file" if self.limits.get("max_memory") == 0 and self.limits.get("max_storage") else "memory"

    @property
    def stream_options(self) -> dict[str, Any]:
        """What the creation of every stream has to say."""
        return {"max_bytes": MAX_BYTES} if self.limits.get("max_bytes_required") else {}

    def missing(self, lines: Iterable[WireLine], *, is_plain: bool) -> str:
        """The grant that was missing in an exchange, in a sentence; empty if none was.

        ``is_plain``: Plumbline started the server, without limits of its own.
        """
        received = [line for line in lines if line.direction == "<"]
        found = next((found for line in received if (found := self._missing(line))), "")
        limits = (_SERVER_LIMIT.search(line.raw) for line in received)
        limit = next((limit for limit in limits if limit is not None), None)
        if found or limit is None or is_plain:
            return found
        return f"this server is limited: {limit[1].decode('utf-8', 'replace')}"

    def _missing(self, line: WireLine) -> str:
        violation = _VIOLATION.search(line.text)
        if violation is not None:
            verb = {"publish": "publish to", "subscription": "subscribe to"}.get(violation[1].lower(), "use")
            return f"this login may not {verb} {violation[2]}"
        for code in map(int, _ERR_CODE.findall(line.raw)):
            if code in NO_JETSTREAM and self.no_jetstream:
                return f"this login has no JetStream: {self.no_jetstream}"
            if code == MAX_BYTES_REQUIRED and self.limits.get("max_bytes_required"):
                return "this account requires max_bytes of every stream (max_bytes_required)"
            name, what = LIMIT_OF.get(code, ("", ""))
            if self.limits.get(name, -1) != -1:
                return f"this account is limited in {what} ({name} {self.limits[name]})"
        return ""


def grants_of(answer: bytes) -> Grants:
    """Read from the answer to ``$JS.API.INFO``; of anything else, no grant is known to be missing."""
    try:
        body = json_object(answer)
        error = ApiError.of(body)
    except ProtocolError:
        return Grants()
    if error is not None and error.err_code in NO_JETSTREAM:
        return Grants(no_jetstream=str(error))
    tiers = body.get("tiers")
    # An account with tiers has its limits there; streams of checks have one replica.
    holder = tiers.get("R1", {}) if isinstance(tiers, dict) and tiers else body
    limits = holder.get("limits")
    return Grants(limits=limits if isinstance(limits, dict) else {})
