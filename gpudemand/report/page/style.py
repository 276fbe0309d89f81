"""A style of one's own for the page: rules of CSS that come after ours."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpudemand._validation import InputError

_MAX_BYTES = 1_000_000
#: What would end the style's element, and what a browser would fetch: the page is one file.
_REFUSED = re.compile(r"</|@import|(?<![\w-])(?:src|url|image-set)\s*\((?!\s*[\"']?data:)", re.IGNORECASE)


def read_style(path: str | os.PathLike[str] | None) -> str:
    """Read rules of CSS that are put into the page, after its own; empty without a path.

    Raises
    ------
    InputError
        If the file cannot be read, is no text of at most a megabyte, or refers to other files than ``data:``.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "company.css")
    >>> _ = file.write_text(":root { --blue: #005a3c; }")
    >>> read_style(file)
    ':root { --blue: #005a3c; }'
    """
    if path is None:
        return ""
    try:
        content = Path(path).read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"style {str(path)!r} cannot be read as text; name a file of CSS.") from error
    if len(content) > _MAX_BYTES:
        raise InputError(f"style {str(path)!r} has more than a megabyte; name a smaller file of CSS.")
    if (found := _REFUSED.search(text)) is not None:
        raise InputError(
            f"style {str(path)!r} holds {found[0]!r}, but the page is one file; put fonts and images in as data: URLs."
        )
    return text
