"""nats.py, the client that sets stages for tests."""

from __future__ import annotations

from nats.aio.client import Client


async def flushed(client: Client) -> None:
    """The server has read all that the client sent before.

    The PING of nats.py's ``flush`` overtakes what its task has not written yet (seen with 2.16.0). That is
    written before the PONG is read, so the PING of a second ``flush`` follows it.
    """
    await client.flush()
    await client.flush()
