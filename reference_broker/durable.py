"""A shell whose core has state that outlives it: changes in the core's write queue are written before anyone
learns of it.

All that happens in one turn of the event loop is one write, and one fsync where every write is to be on the
disk: so a thousand messages cost what one costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from plumbline.reference_broker.shell import Client, Core, Shell
from plumbline.reference_broker.store_folder import Stamp, StoreError, StoreFolder
from plumbline.reference_broker.write_queue import WriteQueue

__all__ = ["DurableShell", "StorageOptions", "StoreError"]

MAX_REASON = 200  # characters of an error in a sentence


class StorageOptions:
    """Where and how a broker keeps its state.

    ``sync``: ``always`` is before anyone learns of a change, ``never`` is for the operating system to decide,
    a number is every so many seconds. ``recover`` gives the core the files of before and returns warnings.
    """

    def __init__(
        self,
        path: Path,
        stamp: Stamp,
        write_queue: WriteQueue,
        recover: Callable[[Mapping[str, bytes], int], list[str]],
        sync: float | Literal["always", "never"],
    ) -> None:
        self.folder = StoreFolder(path, stamp, synced=sync == "always")
        self.write_queue = write_queue
        self.recover = recover
        self.sync = sync


class DurableShell(Shell):
    """With ``storage``; without, a shell like every other.

    ``warnings`` is what was lost at the start, in sentences; ``failed`` is done when the disk is full or
    gone, and gives the sentence: nothing has been acknowledged since that was not written.
    """

    def __init__(self, core: Core, storage: StorageOptions | None, **options: Any) -> None:
        super().__init__(core, **options)
        self.storage = storage
        self.warnings: list[str] = []
        self.failed: asyncio.Future[str] | None = None
        self._pending_outputs: list[tuple[Iterable[Any], Client | None]] = []
        self._commit_is_due = False
        self._has_ended = False  # the folder is let go: it may be another broker's now
        self._sync_handle: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Read what is there, then listen. Raises ``StoreError`` or ``OSError``."""
        self.failed = asyncio.get_running_loop().create_future()
        try:
            if self.storage is not None:
                self.warnings = self._read_store(self.storage)
                self._commit()
                if self.failed.done():
                    raise StoreError(self.failed.result())
            await super().start()
        except BaseException:
            self._close_store()
            raise

    def _read_store(self, storage: StorageOptions) -> list[str]:
        """The warnings. Raises ``StoreError``, also for content that no broker has written.

        Damage is known by its checksums, and is cut off. Where they are right, something else was done to the
        store: nothing of it is changed.
        """
        files = storage.folder.open()
        try:
            return storage.recover(files, self.now())
        except Exception as error:  # whatever the content leads to
            raise StoreError(
                f"the store {storage.folder.path} cannot be used: its checksums are right, but its content "
                f"makes no sense ({type(error).__name__}: {str(error)[:MAX_REASON]}). Nothing was changed: "
                "restore it, or choose another folder"
            ) from error

    async def stop(self) -> None:
        """All is on the disk when it returns, unless ``failed`` is done or the configuration says never."""
        self._commit()  # what waits for the disk is sent before the connections close
        await super().stop()
        if self._has_ended:
            return
        self._commit()
        self._has_ended = True
        if self._sync_handle is not None:
            self._sync_handle.cancel()
        if self.storage is not None and self.storage.sync != "never" and not self.is_broken:
            try:
                self.storage.folder.sync()
            except OSError as error:
                self._fail(error)
        self._close_store()

    @property
    def is_broken(self) -> bool:
        """Whether a write has failed: then nothing is written and nothing is sent any more."""
        return self.failed is not None and self.failed.done()

    def carry_out(self, outputs: Iterable[Any], producer: Client | None = None) -> None:
        if self.storage is None or not (self._pending_outputs or self.storage.write_queue):
            super().carry_out(outputs, producer)
            return
        if self.is_broken or self._has_ended:
            return
        self._pending_outputs.append((outputs, producer))
        self.schedule()
        if not self._commit_is_due:
            self._commit_is_due = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Write what has changed; then say what waited for it."""
        self._commit_is_due = False
        keeping = self.storage
        if keeping is None or self.is_broken or self._has_ended:
            return
        try:
            if keeping.write_queue:
                keeping.folder.write(keeping.write_queue.take())
        except OSError as error:
            self._fail(error)
            return
        held, self._pending_outputs = self._pending_outputs, []
        for outputs, producer in held:
            super().carry_out(outputs, producer)
        self._sync_later()

    def _sync_later(self) -> None:
        keeping = self.storage
        if keeping is None or isinstance(keeping.sync, str) or self._sync_handle is not None:
            return
        if keeping.folder.is_dirty:
            self._sync_handle = asyncio.get_running_loop().call_later(keeping.sync, self._sync)

    def _sync(self) -> None:
        self._sync_handle = None
        if self.storage is not None and not self.is_broken:
            try:
                self.storage.folder.sync()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        assert self.storage is not None
        assert self.failed is not None
        self._pending_outputs.clear()
        self.failed.set_result(f"the store {self.storage.folder.path} cannot be written: {error}")
        for client in tuple(self.clients.values()):
            client.transport.abort()

    def _close_store(self) -> None:
        if self.storage is not None:
            self.storage.folder.close()
