"""Pages that are made from the package and its notebooks, beside those that are written by hand."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import gpudemand
from docs.api_pages import commands, library, page, schema

_ROW = re.compile(r"^\| \[(\w+)\]\(\1\.ipynb\) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def write_sources(docs: Path) -> None:
    """Write the reference, the commands and the gallery, and remove what earlier builds left of them.

    A file that has not changed keeps its time, so that Sphinx does not read it again.

    Parameters
    ----------
    docs : Path
        The folder of the pages.
    """
    made = {f"reference/{name}": text.encode() for name, text in reference_pages().items()}
    for file in sorted((docs.parent / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{file.name}"] = file.read_bytes()
        made[f"notebooks/{file.stem}.png"] = thumbnail(json.loads(file.read_text(encoding="utf-8")))
    made["notebooks/index.md"] = gallery((docs.parent / "notebooks/README.md").read_text(encoding="utf-8")).encode()
    for name, content in made.items():
        _write(docs / name, content)
    # Autosummary writes these itself, and leaves those of names that are no more.
    kept = made.keys() | {f"reference/api/{name}.rst" for names in library().values() for name in names}
    for file in (*docs.glob("reference/**/*.*"), *docs.glob("notebooks/*.*")):
        if file.relative_to(docs).as_posix() not in kept:
            file.unlink()


def reference_pages() -> dict[str, str]:
    """File name -> text of the generated pages of the reference."""
    pages = {f"{package}.rst": page(package, names) for package, names in library().items()}
    for file in sorted(Path(gpudemand.__file__).parent.rglob("*.schema.json")):
        pages[f"{file.stem}.md"] = schema(json.loads(file.read_text(encoding="utf-8")))
    return {**pages, "commands.md": commands()}


def notebook_rows(readme: str) -> list[tuple[str, str, str]]:
    """Notebooks of their README: name, question, answer."""
    return _ROW.findall(readme)


def gallery(readme: str) -> str:
    """Return the page of the notebooks: a card each, with its question, its answer and one of its figures."""
    rows = notebook_rows(readme)
    cards = [
        f":::{{grid-item-card}} {question}\n:img-top: {name}.png\n:link: {name}\n:link-type: doc\n\n{answer}\n:::"
        for name, question, answer in rows
    ]
    about = "Each asks one question. The outputs are stored; CI runs every notebook from a fresh kernel."
    toctree = ["```{toctree}", ":hidden:", "", *(name for name, _, _ in rows), "```", ""]
    return "\n\n".join(["# Notebooks", about, "::::{grid} 1 2 2 3\n:gutter: 3", *cards, "::::", "\n".join(toctree)])


def thumbnail(notebook: dict[str, object]) -> bytes:
    """Return the first figure of a notebook, a PNG image."""
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", ()))
    return base64.b64decode(next(o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        path.write_bytes(content)
