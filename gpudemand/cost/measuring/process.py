"""The parent's end of a measuring process: ask it, wait for it, and tell how it died."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|cannot allocate memory|can't allocate memory|OOM when", re.I)


class MeasuringProcess:
    """A fresh Python process that trains what it is asked to; killed when it takes too long.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        On ``cpu`` it sees no GPU.
    """

    def __init__(self, device: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process; closed with it)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpudemand.cost.measuring.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(device),
        )
        self._late = False

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and return the answer; a death without one is an answer too."""
        timer = threading.Timer(timeout_s, self._give_up)
        timer.start()
        try:
            line = self._exchange(json.dumps(request))
        finally:
            timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else self._cause_of_death(timeout_s)
        return answer

    @property
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _exchange(self, text: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it died at its start: the reading side tells
            return b""
        return self._process.stdout.readline()

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def _cause_of_death(self, timeout_s: float) -> dict[str, Any]:
        code = self._process.wait()
        if self._late:
            return {"status": "timeout", "message": f"not finished within {timeout_s:g} s"}
        if code in (-signal.SIGTERM, -signal.SIGINT):
            # Somebody stops the run: the job is left for the next one, not recorded as a failure of its own.
            raise KeyboardInterrupt("the measuring process was told to stop")
        if code == -signal.SIGKILL:
            return {"status": "oom", "message": "killed by the system"}
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        found = _OUT_OF_MEMORY.search(text)
        if found:
            return {"status": "oom", "message": f"ended with code {code}: {found[0]}"}
        return {"status": "error", "message": f"the process ended with code {code}"}


def _environment(device: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    extra = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**os.environ, **extra, **({"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {})}
