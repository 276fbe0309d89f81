"""The process that runs one measurement."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
from functools import partial
from typing import Any

from benchmarks.measure.meter import Configuration, Sampling, Session, measure
from benchmarks.measure.networks import load_networks
from gpudemand._child import serve

#: Messages of allocators that ran out of memory.
OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|cannot allocate memory|can't allocate memory|OOM when", re.I)


def main() -> None:
    """Answer requests until the input ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    serve(_answer)


def _end_with_parent(parent: int) -> None:
    """Exit when the parent was killed: an orphan would disturb the next measurement."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"status": "ok", **_train(request)}
    except Exception as error:  # any exception of training is the result of this row
        return failed(error)


def _train(request: dict[str, Any]) -> dict[str, object]:
    job = Configuration(**request["configuration"])
    start = time.perf_counter()
    session_class = _session_class(job.framework)
    _limit_memory(request["memory_limit_gib"])
    gc.collect()  # frees the session before this one, if any
    session: Session = session_class(job, partial(job.build, load_networks(request["networks"])))
    ready = time.perf_counter() - start
    result = measure(session, Sampling(**request["sampling"]), on_device=job.device == "cuda")
    return {**result, "start_s": ready}


def _session_class(framework: str) -> Any:
    if framework == "torch":
        from benchmarks.measure.torch_session import TorchSession

        return TorchSession
    from benchmarks.measure.keras_session import KerasSession

    return KerasSession


def _limit_memory(gib: float | None) -> None:
    """Limit the address space to `gib` more than the libraries of the framework have mapped."""
    if gib is None or sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(gib * 2**30),) * 2)


def failed(error: Exception) -> dict[str, object]:
    """Columns of a job that ended with an error."""
    return {"status": "oom" if _is_out_of_memory(error) else "error", "message": _one_line(error)}


def _is_out_of_memory(error: Exception) -> bool:
    names = ("MemoryError", "OutOfMemoryError", "ResourceExhaustedError")
    return type(error).__name__ in names or OUT_OF_MEMORY.search(str(error)) is not None


def _one_line(error: Exception) -> str:
    # Rows are published: folders of this machine are removed from messages.
    text = re.sub(r"(?:/[^\s/:'\"]+)+/", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    main()
