"""Detection of BLAS kernels that are slower than the processor allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

#: OpenBLAS kernels for x86-64 without AVX.
_WITHOUT_AVX = {"prescott", "core2", "penryn", "dunnington", "nehalem", "atom", "athlon", "opteron"}
_WITHOUT_AVX |= {"opteron_sse3", "barcelona", "bobcat", "katmai", "coppermine", "northwood", "banias", "generic"}


def slow_blas_message(libraries: Iterable[Mapping[str, Any]], cpu_flags: Collection[str]) -> str | None:
    """Message on a BLAS without AVX kernels on a processor with AVX2.

    Parameters
    ----------
    libraries : iterable of mapping
        As ``threadpoolctl.threadpool_info()`` returns them.
    cpu_flags : collection of str
        As `cpu_flags` returns them.

    Returns
    -------
    str or None
        One line; None if the kernels fit the processor.

    Examples
    --------
    >>> print(slow_blas_message([{"internal_api": "openblas", "architecture": "Prescott"}], {"avx2"}))
    OpenBLAS uses its Prescott kernels (no AVX) although the processor has AVX2, which is several times slower: install
    newer numpy and scipy wheels, or set OPENBLAS_CORETYPE=Haswell.
    """
    names = {str(library.get("architecture", "")) for library in libraries if library["internal_api"] == "openblas"}
    slow = sorted(name for name in names if name.lower() in _WITHOUT_AVX)
    if not slow or "avx2" not in cpu_flags:
        return None
    return (
        f"OpenBLAS uses its {slow[0]} kernels (no AVX) although the processor has AVX2, which is several times slower: "
        "install newer numpy and scipy wheels, or set OPENBLAS_CORETYPE=Haswell."
    )


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Feature flags of the processor, from Linux; empty on other systems."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split(":")[-1].split())
