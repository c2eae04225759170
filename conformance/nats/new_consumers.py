"""Pull requests for consumers that a node of a cluster may not know of yet.

The leader of a consumer answers that it is created, and tells the other nodes so on other connections. A pull
request that is sent right after that answer may get 503 from the node of the client: that nobody has got it
(docs.nats.io, "Request-Reply", "No responders"). So it is sent again, for a while.
"""

from __future__ import annotations

from plumbline.conformance.nats.statuses import status_code
from plumbline.wire.nats import HMsg, HPub, Operation, Pub
from plumbline.wire.nats.jetstream import API_PREFIX

LEARNS_WITHIN_S = 2.0
NO_RESPONDERS = 503
_CREATES = (f"{API_PREFIX}.CONSUMER.CREATE.", f"{API_PREFIX}.CONSUMER.DURABLE.CREATE.")
_PULLS = f"{API_PREFIX}.CONSUMER.MSG.NEXT."
_ENDS = (f"{API_PREFIX}.CONSUMER.DELETE.", f"{API_PREFIX}.STREAM.DELETE.", f"{API_PREFIX}.STREAM.RESTORE.")


class NewConsumers:
    """Those of one check. All times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._created: dict[str, float] = {}  # when a consumer of this stream was created last
        self._pulls: dict[str, Pub | HPub] = {}  # by reply subject

    def on_sent(self, at: float, operation: Operation) -> None:
        """A client sends something."""
        if not isinstance(operation, Pub | HPub):
            return
        subject = operation.subject
        for prefix in (*_CREATES, *_ENDS):
            if subject.startswith(prefix):
                stream = subject[len(prefix) :].partition(".")[0]
                if prefix in _CREATES:
                    self._created[stream] = at
                else:
                    self._created.pop(stream, None)
        if subject.startswith(_PULLS) and operation.reply:
            self._pulls[operation.reply] = operation

    def pull_to_repeat(self, at: float, operation: Operation) -> Pub | HPub | None:
        """The pull request that nobody has got, as ``operation`` says, if it may have been too early."""
        if not isinstance(operation, HMsg) or operation.payload or status_code(operation) != NO_RESPONDERS:
            return None
        pull = self._pulls.get(operation.subject)
        if pull is None:
            return None
        stream = pull.subject[len(_PULLS) :].partition(".")[0]
        created = self._created.get(stream)
        return pull if created is not None and at < created + LEARNS_WITHIN_S else None
