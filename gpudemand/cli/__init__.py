"""The command line: parse, call, show progress."""

from gpudemand.cli.app import main

__all__ = ["main"]
