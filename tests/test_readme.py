"""What the README shows is what the code prints."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def test_examples_print_what_they_say():
    if not README.is_file():
        pytest.skip("runs from a checkout")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testfile(str(README), module_relative=False, optionflags=flags)
    assert result.attempted >= 8
    assert result.failed == 0
