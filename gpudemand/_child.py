"""A Python process beside this one that answers requests, a line of JSON each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Child:
    """A fresh Python process in safe-path mode (``-P``): no file of its working directory takes the place of a library.

    `arguments`: of the interpreter; what they run calls `serve`. `environment`: None is that of this process.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer to a request; None if the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # the process died at its start
            return None
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def wait(self) -> int:
        """Exit status, when the process has ended."""
        return self._process.wait()

    def said(self) -> str:
        """All that the process has written to standard error, and its libraries to standard output."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill the process; a request that it answers has no answer."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and close its files."""
        self.kill()
        self._process.communicate()
        self._errors.close()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer requests, in a child, until its standard input ends."""
    # Answers go to a copy of standard output; what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
