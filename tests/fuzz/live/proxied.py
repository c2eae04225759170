"""``plumbline record`` in front of a broker, with faults that come and go."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from plumbline.captures.files import files_of
from plumbline.captures.reader import CaptureParser
from plumbline.captures.reassembly import BytesLost, Reassembler, StreamBytes
from plumbline.captures.segments import segment
from tests.fuzz.live.control_api import HARMLESS, ControlClient
from tests.fuzz.live.programs import Broken, Program
from tests.fuzz.live.subjects import KINDS, BrokerSubject, address_of

ROLL_SIZE = "4M"
KEPT_FILES = 2  # the file that is written, and the one before
DISTURBANCES = 20  # requests to the control API before faults are switched off again


class ProxySubject:
    """Faults hit fuzzing connections only: they are off, or harmless, while the honest client works."""

    def __init__(self, name: str, folder: Path, seed: int, options: list[str]) -> None:
        self.kind = KINDS[name]
        self.broker = BrokerSubject(name, folder, seed, options)
        self.honest = self.broker.honest
        self.left = self.broker.left
        self.program = Program("record")
        self.address = ("", 0)
        self._captures = folder / "captures"
        self._random = Random(f"faults {seed}")
        self._control = ControlClient(("", 0), self._random)
        self._url = ""
        self._seed = seed

    async def start(self) -> None:
        await self.broker.start()
        self.program = Program(
            *("record", self.broker.url, "--listen", "127.0.0.1:0", "-o", str(self._captures)),
            *("--control", "0", "--roll-size", ROLL_SIZE, "--seed", str(self._seed)),
        )
        line = await self.program.start()
        self._url = line.split()[0]
        self.address = address_of(self._url)
        found = re.search(r"control API at (http://[\d.:]+)", line)
        assert found is not None, line
        self._control = ControlClient(address_of(found[1]), self._random)
        await self.honest.connect(self._url)

    async def round(self) -> None:
        self.broker.program.check()
        self.honest.close()  # faults that end connections would end this one
        for _ in range(DISTURBANCES):
            await self._control.disturb()
        await self._control.reset()
        await self.honest.connect(self._url)
        await self.honest.round()
        fault = self._random.choice(HARMLESS)
        await self._control.ask("POST", "/faults", {"name": "harmless", "fault": fault})
        await self.honest.round()
        await self._control.reset()
        for file in files_of([self._captures])[:-KEPT_FILES]:
            if not check_capture(file):
                raise Broken(f"{file.name} has no data")
            file.unlink()

    async def finish(self) -> None:
        """The captures can be read after the proxy has ended, and the broker holds what it has to."""
        await self.honest.round()
        self.honest.close()
        await self.program.stop()
        sizes = [check_capture(file) for file in files_of([self._captures])]
        if not any(sizes):  # the newest may have been begun at the very end
            raise Broken(f"{self._captures} has no data")
        await self.honest.connect(self.broker.url)
        await self.broker.finish()

    async def kill(self) -> None:
        await self.program.kill()
        await self.broker.kill()


def check_capture(file: Path) -> int:
    """Every packet is read, and no byte of a connection is missing: how many there are. Raises ``Broken``."""
    reassembler, size = Reassembler(), 0
    for packet in CaptureParser().feed(file.read_bytes()):
        one = segment(packet)
        for event in reassembler.feed(one) if one is not None else ():
            if isinstance(event, BytesLost):
                raise Broken(
                    f"{file.name}: {event.size} bytes of connection {event.connection.number} missing"
                )
            if isinstance(event, StreamBytes):
                size += len(event.data)
    return size
