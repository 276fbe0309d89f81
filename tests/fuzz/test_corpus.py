"""What a fuzzer found stays mended, and its targets are alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_the_inputs_of_the_corpus(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    assert target.check(target.valid(), tmp_path), "the valid file is refused"
    for file in sorted((CORPUS / name).iterdir()):
        target.check(file.read_bytes(), tmp_path)


def test_every_corpus_has_its_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
