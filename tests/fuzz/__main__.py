"""Coverage-guided fuzzing of one reader with atheris (``pip install atheris``; no part of the tests).

``python -m tests.fuzz NAME -max_total_time=600 NEW tests/fuzz/corpus/NAME`` mutates the valid file of the target `NAME`
of `tests.fuzz.targets` and the inputs of its corpus. Inputs that reach new code are written to the folder ``NEW``; one
that breaks a promise is written as ``crash-*`` and belongs into the corpus, which the tests replay.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

#: Packages whose branches guide the fuzzer.
_READERS = ["jobs", "slurm", "pull", "store", "planfile", "_manifest", "report.history"]
_READERS += ["cost.predict", "cost.measuring", "cost.large_models", "datasets.devices"]


def main() -> None:
    """Fuzz the reader that the first argument names; the others are libFuzzer's."""
    import atheris

    with atheris.instrument_imports(include=[f"gpudemand.{name}" for name in _READERS]):
        from tests.fuzz.targets import TARGETS
        from tests.jobs.mutations import mutate

    def damage(data: bytes, max_size: int, seed: int) -> bytes:
        """Damage an input as libFuzzer does, or as the tests do."""
        return mutate(data, seed)[:max_size] if seed % 2 else atheris.Mutate(data, max_size)

    name = sys.argv.pop(1)
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        seed = folder / "seed" / name
        seed.parent.mkdir()
        seed.write_bytes(target.valid())
        atheris.Setup([*sys.argv, str(seed.parent)], lambda data: target.check(data, folder), custom_mutator=damage)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
