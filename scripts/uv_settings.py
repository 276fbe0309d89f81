"""Print pip's settings as environment variables of uv, which reads neither pip's files nor PIP_*; for ``eval``."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys

#: pip's setting -> uv's variable, and what separates several values.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}


def uv_settings(listing: str) -> dict[str, str]:
    """Translate the output of ``pip config list``; settings for ``pip install`` and PIP_* win over global ones."""
    found: dict[str, str] = {}
    order = ("global.", "install.", ":env:.")
    lines = [line.split("=", 1) for line in listing.splitlines() if "=" in line]
    for prefix in order:
        for key, value in lines:
            name, separator = VARIABLES.get(key.removeprefix(prefix), ("", ""))
            if key.startswith(prefix) and name:
                found[name] = separator.join(str(ast.literal_eval(value)).split())
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip, too, takes the best version of all indexes
    return found


if __name__ == "__main__":
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    for name, value in uv_settings(pip.stdout).items():
        if name not in os.environ:
            print(f"export {name}={shlex.quote(value)}")
