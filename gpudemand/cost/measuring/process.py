"""Parent's side of a measuring process: requests, timeouts, and the cause of its death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from gpudemand.cost.measuring.child import OUT_OF_MEMORY


class MeasuringProcess:
    """A fresh Python process that trains jobs on request and is killed at a timeout; on ``cpu`` it sees no GPU."""

    def __init__(self, device: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpudemand.cost.measuring.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(device),
        )
        self._timed_out = False

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and return the answer, or the cause of death of a process that did not answer."""
        timer = threading.Timer(timeout_s, self._abort)
        timer.start()
        try:
            line = self._exchange(json.dumps(message))
        finally:
            timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else self._cause_of_death(timeout_s)
        return answer

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _exchange(self, text: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # the process died at its start
            return b""
        return self._process.stdout.readline()

    def _abort(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _cause_of_death(self, timeout_s: float) -> dict[str, Any]:
        code = self._process.wait()
        if self._timed_out:
            return {"status": "timeout", "message": f"not finished within {timeout_s:g} s"}
        if code in (-signal.SIGTERM, -signal.SIGINT):
            # The run is being stopped from outside: the job is not recorded, and measured by the next run.
            raise KeyboardInterrupt("the measuring process was stopped")
        if code == -signal.SIGKILL:
            return {"status": "oom", "message": "killed by the system"}
        self._errors.seek(0)
        found = OUT_OF_MEMORY.search(self._errors.read().decode(errors="replace"))
        if found:
            return {"status": "oom", "message": f"ended with code {code}: {found[0]}"}
        return {"status": "error", "message": f"the process ended with code {code}"}


def _environment(device: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    extra = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**os.environ, **extra, **({"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {})}
