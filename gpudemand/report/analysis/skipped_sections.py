"""Sections that a log is too small or too silent for: they say why, and the rest of the page goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpudemand._validation import InputError

T = TypeVar("T")


class Gaps(dict[str, str]):
    """Name of a section -> one sentence that says why it could not be made.

    Examples
    --------
    >>> gaps = Gaps()
    >>> gaps.attempt("tea", lambda: 1), gaps
    (1, {})
    """

    def attempt(self, name: str, make: Callable[[], T]) -> T | None:
        """Make a section, or note why it cannot be made.

        Parameters
        ----------
        name : str
            Of the section.
        make : callable
            Raises `InputError` with a sentence where the log does not allow it; any other error is a mistake of ours
            and goes on.

        Returns
        -------
        object or None
            What `make` returned; None if it refused.
        """
        try:
            return make()
        except InputError as error:
            self[name] = _sentence(str(error))
            return None


def _sentence(text: str) -> str:
    """Begin with a capital letter and end with a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."
