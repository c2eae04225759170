"""Folders of results: on this machine, or wherever Spark's own file systems reach (hdfs, s3a, ...)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder(Protocol):
    """A folder by its name. ``at`` is what Spark writes to below it."""

    def at(self, *names: str) -> str:
        """The address of what lies below."""

    def read(self, name: str) -> str | None:
        """A small text file; None if there is none."""

    def replace(self, name: str, text: str) -> None:
        """Writes a small text file: whoever reads sees the old text or the new one."""

    def names(self) -> list[str]:
        """What lies in it; nothing if it does not exist."""

    def delete(self, name: str) -> None:
        """Removes what lies below, with all in it."""


def folder(place: str, spark: SparkSession) -> Folder:
    """The folder that ``place`` names: a path, or an address with a scheme."""
    return HadoopFolder(place, spark) if is_remote(place) else LocalFolder(Path(place))


def is_remote(place: str) -> bool:
    """Whether Spark's file systems are asked for it, not Python's."""
    return "://" in place


class LocalFolder:
    """See ``Folder``."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def at(self, *names: str) -> str:
        return str(self._path.joinpath(*names))

    def read(self, name: str) -> str | None:
        try:
            return (self._path / name).read_text()
        except FileNotFoundError:
            return None

    def replace(self, name: str, text: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        written = self._path / f".{name}.{os.getpid()}"
        with written.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._path / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._path.iterdir()) if self._path.is_dir() else []

    def delete(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)


class HadoopFolder:
    """See ``Folder``. ``replace`` is as atomic as the file system's rename (HDFS) or its put (s3a)."""

    def __init__(self, path: str, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm, self._place = jvm.org.apache.hadoop.fs, path.rstrip("/")
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._system = self._path().getFileSystem(configuration)

    def _path(self, *names: str) -> Any:
        return self._jvm.Path(self.at(*names))

    def at(self, *names: str) -> str:
        return "/".join((self._place, *names))

    def read(self, name: str) -> str | None:
        if not self._system.exists(self._path(name)):
            return None
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def replace(self, name: str, text: str) -> None:
        stream = self._system.create(self._path(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def names(self) -> list[str]:
        if not self._system.exists(self._path()):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path()))

    def delete(self, name: str) -> None:
        self._system.delete(self._path(name), True)
