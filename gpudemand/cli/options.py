"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Seq = Annotated[str | None, typer.Option(help="Large models: tokens of a sample, or of source and target (512,128).")]
Data = Annotated[int | None, typer.Option(help="Large models: copies of the model, each on its own samples.")]
Tensor = Annotated[int | None, typer.Option(help="Large models: GPUs that share each layer.")]
Pipeline = Annotated[int | None, typer.Option(help="Large models: stages of consecutive layers, each on its GPUs.")]
VirtualPipeline = Annotated[int | None, typer.Option(help="Large models: parts of a stage, which are interleaved.")]
Context = Annotated[int | None, typer.Option(help="Large models: GPUs that share the tokens of a sample.")]
Expert = Annotated[int | None, typer.Option(help="Large models: GPUs that the experts of a layer are spread over.")]
Zero = Annotated[int | None, typer.Option(help="Large models: level of ZeRO, 0 to 3.")]
Sharding = Annotated[str | None, typer.Option(help="Large models: none, zero1, zero2, zero3, fsdp or hsdp.")]
MicroBatch = Annotated[int | None, typer.Option(help="Samples at once on each GPU.")]
Accumulate = Annotated[int | None, typer.Option(help="Micro-batches whose gradients are summed before a step.")]
GlobalBatch = Annotated[int | None, typer.Option(help="Large models: samples a step on all GPUs.")]
Rank = Annotated[int | None, typer.Option(help="Large models: rank of low-rank adapters.")]
Bits = Annotated[int | None, typer.Option(help="Large models: bits of frozen weights with --lora: 16, 8 or 4.")]
Offload = Annotated[
    str | None, typer.Option(help="Large models: optimizer, parameters, all or activations in host memory.")
]
Loss = Annotated[str | None, typer.Option(help="Large models: plain, fused, or fused_linear as Liger's.")]
Kernels = Annotated[str | None, typer.Option(help="Large models: plain, or fused as in Megatron.")]
Experts = Annotated[str | None, typer.Option(help="Large models: loop over the experts, or grouped products.")]

Format = Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")]
Zone = Annotated[str | None, typer.Option(help="Time zone of the log and of the calendar, such as Europe/Berlin.")]
Origin = Annotated[str | None, typer.Option(help="Time zero of a log whose times are in seconds.")]
By = Annotated[str, typer.Option(help="Split by user, group, cluster, partition, qos or gpu_type; or total.")]
Freq = Annotated[str, typer.Option(help="Width of a bin: h, D, W-MON, MS.")]
NoLimits = Annotated[bool, typer.Option("--no-limits", help="Read a log of any size.")]
Until = Annotated[str | None, typer.Option(help="End of the period; by default where the log stops being complete.")]
