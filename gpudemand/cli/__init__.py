"""Command line interface: parse, call, show progress."""

from gpudemand.cli.app import main

__all__ = ["main"]
