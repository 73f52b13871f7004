"""The raw files of named data sets from their publishers, when a user asks for them; never otherwise.

Addresses and checksums are data: ``downloads.toml`` beside this module, over which lies the file that the environment
names in ``FALCON_DOWNLOADS`` (a mirror inside a company, say). The network is pooch's and requests': ``HTTPS_PROXY``,
``HTTP_PROXY`` and ``NO_PROXY`` are respected.
"""

import os
import shutil
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falcon_gnn.display import can_draw
from falcon_gnn.errors import DownloadError, OptionError, require
from falcon_gnn.files import replacing

if TYPE_CHECKING:
    from rich.progress import Progress

REGISTRY_VARIABLE = "FALCON_DOWNLOADS"

_CHUNK_BYTES = 1 << 16
_SECONDS_OF_SILENCE = 60


@dataclass(frozen=True)
class RemoteSet:
    """Where the files of a data set are published; either ``base`` or ``archive`` is given.

    Attributes:
        folder: Where they are put, below ``root``.
        base: Address to which the name of each file is appended.
        archive: Address of a zip file that holds them.
        inside: Folder inside the archive.
        also: Further files, taken where the archive has them.
        checksum: Of the archive, as ``sha256:...`` or ``md5:...``; empty where none is known.
        checksums: Of the files below ``base``, by name.
    """

    folder: str
    base: str = ""
    archive: str = ""
    inside: str = ""
    also: tuple[str, ...] = ()
    checksum: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)


Registry = Mapping[str, RemoteSet]


def read_registry(path: Path | None = None) -> Registry:
    """Return the addresses that are known, by the name of the data set.

    Args:
        path: A file laid over the one of the package, set by set; by default the one that the environment names.

    Raises:
        OptionError: If the file cannot be read, or an entry is none.
    """
    named = os.environ.get(REGISTRY_VARIABLE)
    own = package_files("falcon_gnn.datasets") / "data" / "downloads.toml"
    texts = {"downloads.toml": own.read_text(encoding="utf-8")}
    place = Path(named) if path is None and named else path
    try:
        if place is not None:
            texts[str(place)] = place.read_text(encoding="utf-8")
        return {
            name: _remote_set(entry, f"{where}, [{name}]")
            for where, text in texts.items()
            for name, entry in tomllib.loads(text).items()
        }
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{REGISTRY_VARIABLE} must name a readable TOML file, and {place} is not: {error}."
        raise OptionError(msg) from error


def download_files(remote: RemoteSet, files: Sequence[str], root: Path) -> Path:
    """Fetch those files of a data set that are not in its folder yet, and return the folder.

    Each file appears under its name when it is whole and its checksum is right. What is there is never touched.

    Args:
        remote: Where they are published.
        files: Their names, relative to the folder.
        root: The folder above the set's.

    Raises:
        DownloadError: If a file cannot be fetched, is cut short or is another one.
        MissingDependencyError: Without pooch.
        OptionError: If the folder cannot be written to.
    """
    folder = root / remote.folder
    missing = [file for file in files if not (folder / file).is_file()]
    if missing and remote.archive:
        _fetch_archive(remote, missing, folder)
    elif missing:
        for file in missing:
            _fetch(remote.base + file, folder / file, remote.checksums.get(file, ""))
    return folder


def _fetch_archive(remote: RemoteSet, missing: Sequence[str], folder: Path) -> None:
    """Fetch an archive, take the missing files out of it and remove it."""
    archive = folder / f".{os.getpid()}.{remote.archive.rpartition('/')[2]}"
    _fetch(remote.archive, archive, remote.checksum)
    try:
        with _saying_what(remote.archive), zipfile.ZipFile(archive) as opened:
            there = set(opened.namelist())
            for file in (*missing, *remote.also):
                member = f"{remote.inside}/{file}" if remote.inside else file
                if file in missing or (member in there and not (folder / file).is_file()):
                    _unpack(opened, member, folder / file)
    finally:
        archive.unlink()


def _unpack(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    with archive.open(member) as source, replacing(target) as temporary, temporary.open("wb") as sink:
        shutil.copyfileobj(source, sink, _CHUNK_BYTES)


def _fetch(url: str, target: Path, checksum: str) -> None:
    """Fetch a file, which appears whole and with the right checksum or not at all."""
    pooch = require("pooch", "download")
    with replacing(target) as temporary, _saying_what(url), _bar(url.rpartition("/")[2]) as bar:
        get = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK_BYTES, timeout=_SECONDS_OF_SILENCE)
        get(url, str(temporary), None)
        if checksum:
            kind, _, known = checksum.rpartition(":")
            found = pooch.file_hash(str(temporary), alg=kind or "sha256")
            if found != known.lower():
                msg = (
                    f"{url} must have the checksum {checksum}, got {found}: it was changed on the way or is another "
                    "file. Nothing of it was kept."
                )
                raise DownloadError(msg)


@contextmanager
def _saying_what(url: str) -> Iterator[None]:
    """Turn what the network or an archive says into an error of ours that names the address."""
    from requests.exceptions import RequestException

    try:
        yield
    except RequestException as error:
        msg = (
            f"{url} cannot be fetched ({type(error).__name__}: {error}). Nothing of it was kept. Try again, or look at "
            f"the network: HTTPS_PROXY, HTTP_PROXY and NO_PROXY are respected, and {REGISTRY_VARIABLE} may name a file "
            "with other addresses."
        )
        raise DownloadError(msg) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        msg = f"{url} is not the archive that it should be ({type(error).__name__}: {error}). Nothing of it was kept."
        raise DownloadError(msg) from error


class _Bar:
    """A bar of Rich's with what pooch asks of a progress bar."""

    def __init__(self, progress: "Progress", name: str) -> None:
        self._progress, self._task = progress, progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        """Bytes in all; None where the server does not say."""
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, num_bytes: int) -> None:
        self._progress.update(self._task, total=num_bytes or None)

    def update(self, num_bytes: int) -> None:
        """Move on by some bytes."""
        self._progress.update(self._task, advance=num_bytes)

    def reset(self) -> None:
        """Go back to the beginning."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """Do nothing: the bar ends with its context."""


@contextmanager
def _bar(name: str) -> Iterator[_Bar]:
    """Yield a bar on standard error, where there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not can_draw(console)) as progress:
        yield _Bar(progress, name)


def _remote_set(entry: Any, place: str) -> RemoteSet:
    """Return an entry of a registry, checked."""
    known = {entry.name for entry in fields(RemoteSet)}
    if not isinstance(entry, dict) or set(entry) - known or not isinstance(entry.get("folder"), str):
        msg = f"{place} must be a table with folder and base or archive, and may have {', '.join(sorted(known))}."
        raise OptionError(msg)
    remote = RemoteSet(**{**entry, "also": tuple(entry.get("also", ()))})
    if bool(remote.base) == bool(remote.archive):
        msg = f"{place} must have either base or archive, got {'both' if remote.base else 'neither'}."
        raise OptionError(msg)
    return remote
