"""Make ``python -m gpudemand`` the command line."""

from __future__ import annotations

from gpudemand.cli.app import main

if __name__ == "__main__":
    main()
