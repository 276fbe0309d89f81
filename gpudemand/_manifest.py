"""Manifest of a folder: a JSON file with the name and SHA-256 of every other file in it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError

#: What file managers leave in folders that they show.
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")


def write_manifest(folder: Path, name: str, about: Mapping[str, Any]) -> None:
    """List all files of a folder in its manifest.

    Parameters
    ----------
    folder : Path
    name : str
        Of the manifest.
    about : mapping
        Further entries; ``format`` is checked by `read_manifest`.
    """
    files = {file: file_sha256(folder / file) for file in sorted(_files(folder)) if file != name}
    (folder / name).write_text(manifest_text({**about, "files": files}), encoding="utf-8")


def manifest_text(content: Mapping[str, Any]) -> str:
    """Return the text of a manifest: its entries, ``files`` among them, and their checksum."""
    return json.dumps({**content, "sha256": _content_sha256(content)}, indent=1) + "\n"


def read_manifest(folder: Path, name: str, version: int, only: Collection[str] | None = None) -> dict[str, Any]:
    """Read a manifest, and compare its checksum and those of the files that it lists.

    Parameters
    ----------
    folder : Path
    name : str
        Of the manifest.
    version : int
        The one value of ``format`` that is known.
    only : collection of str, optional
        Files that are looked at; by default all that are listed.

    Raises
    ------
    InputError
        If the manifest or a file is missing or damaged, or its format is another one.
    """
    content = _read(folder / name)
    if content is None:
        raise InputError(f"{name} in {str(folder)!r} is damaged; copy or save the folder again.")
    if content.get("format") != version:
        raise InputError(
            f"{name} in {str(folder)!r} has format {content.get('format')!r}, and this version reads {version}; "
            "fit and save it again, or update gpudemand."
        )
    if content.pop("sha256", None) != _content_sha256(content) or not isinstance(content.get("files"), dict):
        raise InputError(f"{name} in {str(folder)!r} is damaged or was edited; copy or save the folder again.")
    listed = content["files"]
    for file, checksum in listed.items() if only is None else [(file, listed.get(file)) for file in only]:
        if not os.path.isfile(folder / file):  # also false for names that no file can have
            raise InputError(f"{file} is missing in {str(folder)!r}; copy or save the folder again.")
        if file_sha256(folder / file) != checksum:
            raise InputError(f"{file} in {str(folder)!r} is damaged or was edited; copy or save the folder again.")
    return content


def foreign_file(folder: Path, name: str) -> str | None:
    """Return a file of a folder that its manifest does not list, or None."""
    while True:
        seen = folder.stat()
        content = _read(folder / name) or {}
        files = content.get("files")
        listed = {name, *files} if isinstance(files, dict) else set()
        unlisted = (file for file in _files(folder) if file not in listed and Path(file).name not in _LITTER)
        try:
            found = next(unlisted, None)
        except FileNotFoundError:  # another process is replacing the folder
            continue
        if os.path.samestat(seen, folder.stat()):
            return found


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> Iterator[str]:
    """Relative names of all files, links to folders included."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return (path.relative_to(folder).as_posix() for path in found)


def _read(path: Path) -> dict[str, Any] | None:
    """Content of a manifest, or None for a file that is missing or no JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _content_sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
