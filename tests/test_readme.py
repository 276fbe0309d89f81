"""What the README shows is what the code prints."""

from __future__ import annotations

import doctest
import re
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


def test_what_it_links_to_is_there():
    if not README.is_file():
        pytest.skip("runs from a checkout")
    links = re.findall(r"\]\((?!https?:|#)([^)]+)\)", README.read_text())
    assert len(links) >= 10
    assert [link for link in links if not (README.parent / link).exists()] == []
