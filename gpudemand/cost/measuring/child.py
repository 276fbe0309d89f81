"""The process that trains: a request a line on its standard input, an answer a line on its standard output."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import threading
import time
from typing import Any

from gpudemand.cost.measuring.configuration import Configuration
from gpudemand.cost.measuring.meter import Sampling, Session, measure

_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "oom when allocating",
    "bad_alloc",
)


def main() -> None:
    """Answer requests until the input ends."""
    # Libraries print; what they print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _end_with_parent(parent: int) -> None:
    """Leave when the parent was killed: a forgotten job would disturb the next measurement."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _answer(request: dict[str, Any]) -> dict[str, object]:
    try:
        return {"status": "ok", **_train(request)}
    except Exception as error:  # whatever training raises is this row's result
        return {"status": "oom" if _is_out_of_memory(error) else "error", "message": _one_line(error)}


def _train(request: dict[str, Any]) -> dict[str, object]:
    job = Configuration(**request["configuration"])
    start = time.perf_counter()
    make = _session_class(job.framework)
    _limit_memory(request["memory_limit_gib"])
    gc.collect()  # a job before this one, if any, must hold nothing
    session: Session = make(job)
    ready = time.perf_counter() - start
    result = measure(session, Sampling(**request["sampling"]), on_device=job.device == "cuda")
    return {**result, "start_s": ready}


def _session_class(framework: str) -> Any:
    if framework == "torch":
        from gpudemand.cost.measuring._torch import TorchSession

        return TorchSession
    from gpudemand.cost.measuring._keras import KerasSession

    return KerasSession


def _limit_memory(gib: float | None) -> None:
    """Let the process map `gib` more than the framework's libraries already take."""
    if gib is None:
        return
    import resource

    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(gib * 2**30),) * 2)


def _is_out_of_memory(error: Exception) -> bool:
    name, text = type(error).__name__, str(error).lower()
    return name in ("MemoryError", "OutOfMemoryError", "ResourceExhaustedError") or any(
        sign in text for sign in _OUT_OF_MEMORY
    )


def _one_line(error: Exception) -> str:
    # Rows are published: what a message tells of this machine's folders stays here.
    text = re.sub(r"(?:/[^\s/:'\"]+)+/", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    main()
