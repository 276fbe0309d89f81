"""Update checksums and sizes of bundled files: ``python -m scripts.checksums``, in a checkout."""

from __future__ import annotations

import json
from pathlib import Path

from gpudemand._files import file_sha256, replace_file
from gpudemand.datasets.registry import data_folder


def refresh_checksums(folder: Path, under: str = "") -> None:
    """Update checksum and size of bundled files in ``registry.json``.

    `folder`: the data folder of a checkout. `under`: only files whose path begins with this.
    """
    place = folder / "registry.json"
    registry = json.loads(place.read_text(encoding="utf-8"))
    for row in (row for row in registry["bundled"] if row["path"].startswith(under)):
        path = folder / row["path"]
        row.update(sha256=file_sha256(path), bytes=path.stat().st_size)
    with replace_file(place) as new:
        new.write_text(json.dumps(registry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    refresh_checksums(data_folder())
