"""Options of the shell about the layout of large models."""

from __future__ import annotations

from typing import Annotated

import typer

Seq = Annotated[int | None, typer.Option(help="Large models: tokens of a sample.")]
Degree = Annotated[int | None, typer.Option(help="Large models: GPUs of this kind of parallelism.")]
Zero = Annotated[int | None, typer.Option(help="Large models: level of ZeRO, 0 to 3.")]
Sharding = Annotated[str | None, typer.Option(help="Large models: none, zero1, zero2, zero3, fsdp or hsdp.")]
Count = Annotated[
    int | None, typer.Option(help="Large models: samples at once, times before a step, or samples a step.")
]
Rank = Annotated[int | None, typer.Option(help="Large models: rank of low-rank adapters.")]
Bits = Annotated[int, typer.Option(help="Large models: bits of frozen weights with --lora, 16, 8 or 4.")]
Offload = Annotated[str | None, typer.Option(help="Large models: optimizer, parameters or all in host memory.")]
