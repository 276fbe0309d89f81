"""Sections of the report that a log does not support, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpudemand._validation import InputError

T = TypeVar("T")


class SkippedSections(dict[str, str]):
    """Mapping from the name of a skipped section to one sentence with the reason.

    Examples
    --------
    >>> skipped = SkippedSections()
    >>> skipped.attempt("parts", lambda: 1), skipped
    (1, {})
    """

    def attempt(self, name: str, compute: Callable[[], T]) -> T | None:
        """Compute a section, or record why it is skipped.

        Parameters
        ----------
        name : str
            Name of the section.
        compute : callable
            Takes no arguments. An `InputError` that it raises becomes the reason; other errors propagate.

        Returns
        -------
        object or None
            Result of `compute`; None if the section is skipped.
        """
        try:
            return compute()
        except InputError as error:
            text = str(error)
            self[name] = text[:1].upper() + text[1:].rstrip(".") + "."
            return None
