"""State of a long run in its folder: what it is made from, what its stages took, and which chunks are whole."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpudemand._atomic import replace_file
from gpudemand._manifest import file_sha256
from gpudemand._validation import InputError, shorten
from gpudemand.store.lock import locked

RUN = "run.json"
RESULTS = "forecast"
_FORMAT = 1
_LOCK = ".lock"


class Run:
    """A run in a folder, whose file ``run.json`` is replaced whenever anything is done.

    Parameters
    ----------
    folder : Path
    state : dict
        Content of ``run.json``: ``made_from``, ``series``, ``stages`` and ``chunks``.
    """

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.folder = folder
        self.state = state

    def save(self) -> None:
        """Replace ``run.json``."""
        with replace_file(self.folder / RUN) as new:
            new.write_text(json.dumps(self.state, indent=1) + "\n", encoding="utf-8")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note the seconds and the peak memory of what the block does."""
        began = time.perf_counter()
        yield
        self.state["stages"][name] = {"seconds": round(time.perf_counter() - began, 3), "peak_gib": peak_gib()}
        self.save()

    def note(self, chunk: str, entry: Mapping[str, Any]) -> None:
        """Note what became of a chunk."""
        self.state["chunks"][chunk] = dict(entry)
        self.save()

    def missing(self, chunks: list[str]) -> list[str]:
        """Those of some chunks that are not whole: not noted as such, or no longer the file that was noted."""
        return [name for name in chunks if not self._is_whole(name)]

    def _is_whole(self, chunk: str) -> bool:
        file, checksum = self.folder / RESULTS / chunk, self.state["chunks"].get(chunk, {}).get("sha256")
        return checksum is not None and file.is_file() and file_sha256(file) == checksum


@contextmanager
def open_run(folder: Path, made_from: Mapping[str, Any]) -> Iterator[Run]:
    """Begin a run in a new or empty folder, or go on with one; one process at a time, others wait.

    Parameters
    ----------
    folder : Path
    made_from : mapping
        Input and settings, as JSON has them, which must be those of the run that is there.

    Raises
    ------
    InputError
        If the folder holds anything else, or a run on another log or with other settings.
    """
    if folder.is_file():
        raise InputError(f"{str(folder)!r} is a file; name a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    held = [place.name for place in folder.iterdir() if place.name[0] != "."]
    if held and not (folder / RUN).is_file():
        raise InputError(f"{str(folder)!r} holds {min(held)!r} and no {RUN}; name an empty or a new folder.")
    with locked(folder / _LOCK):
        for left in (*folder.glob(".gpudemand-*"), *(folder / RESULTS).glob(".gpudemand-*")):
            shutil.rmtree(left, ignore_errors=True)
        run = Run(folder, _read(folder, made_from))
        run.save()
        (folder / RESULTS).mkdir(exist_ok=True)
        yield run


def _read(folder: Path, made_from: Mapping[str, Any]) -> dict[str, Any]:
    if not (folder / RUN).is_file():
        return {"format": _FORMAT, "made_from": dict(made_from), "series": None, "stages": {}, "chunks": {}}
    try:
        state: dict[str, Any] = json.loads((folder / RUN).read_bytes())
        found, version = dict(state["made_from"]), state["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{RUN} in {str(folder)!r} is damaged; delete the folder, or name another one.") from error
    for name, wanted in {"format": _FORMAT, **made_from}.items():
        if (was := {**found, "format": version}.get(name)) != wanted:
            raise InputError(
                f"{str(folder)!r} holds a run with {name}={shorten(was)!r} instead of {shorten(wanted)!r}; name "
                "another folder, or delete that one."
            )
    return state


def peak_gib() -> float | None:
    """Largest memory that this process has had, in GiB; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 3)
