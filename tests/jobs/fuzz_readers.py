"""Coverage-guided fuzzing of one reader with atheris (``pip install atheris``; no part of the tests).

``python -m tests.jobs.fuzz_readers NAME -max_total_time=600 NEW tests/jobs/corpus/NAME`` mutates the valid log `NAME`
of `tests.jobs.mutations` and the inputs of the corpus. Inputs that reach new code are written to the folder ``NEW``; an
input that breaks a promise is written as ``crash-*`` and belongs into the corpus, which the tests replay.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Fuzz the reader that the first argument names; the others are libFuzzer's."""
    import atheris

    with atheris.instrument_imports(include=["gpudemand.jobs"]):
        from tests.jobs.mutations import LOGS, USAGE, check_jobs_of, check_usage_of, mutate

    def damage(data: bytes, max_size: int, seed: int) -> bytes:
        """Damage an input as libFuzzer does, or as the tests do."""
        return mutate(data, seed)[:max_size] if seed % 2 else atheris.Mutate(data, max_size)

    name = sys.argv.pop(1)
    check = check_usage_of if name in USAGE else check_jobs_of
    with tempfile.TemporaryDirectory() as folder:
        seed = Path(folder, "seed", name)
        seed.parent.mkdir()
        seed.write_bytes(USAGE[name] if name in USAGE else LOGS[name][1])
        atheris.Setup(
            [*sys.argv, str(seed.parent)], lambda data: check(name, data, Path(folder)), custom_mutator=damage
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
