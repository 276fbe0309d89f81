"""`gpudemand cost`: what a training job costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpudemand.cli import options
from gpudemand.cli.options import Quiet, log_options, one_line, steps, takes_log_options


@one_line
def cost(
    network: Annotated[
        str,
        typer.Argument(
            help="Function, class or model: file.py:name, such as model.py:build_model. The file is run: name only "
            "files that you trust. Or a large model by its name or configuration: llama-3-8b, hf:config.json."
        ),
    ],
    input: Annotated[  # noqa: A002
        str | None, typer.Option(help="Shape of one sample: 3x224x224, or 128 for tokens.")
    ] = None,
    device: Annotated[str, typer.Option(help="A name that `gpudemand devices` lists.")] = "H200",
    batch: Annotated[int | None, typer.Option(help="Samples a step on each GPU, 32 if nothing is said.")] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="sgd, momentum, rmsprop, adagrad, adam or adamw; also adamw_8bit, muon ... of large models."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, tf32, fp16 or bf16 (mixed); fp8 of large models.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs; each holds a copy of the network unless a layout is given.")] = 1,
    layout: Annotated[str | None, typer.Option(help="contiguous or channels_last, the order of images.")] = None,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Recompute activations in the backward pass.")
    ] = False,
    selective: Annotated[bool, typer.Option("--selective", help="Large models: recompute cheap activations.")] = False,
    mode: Annotated[str, typer.Option(help="training or inference.")] = "training",
    dtype: Annotated[str | None, typer.Option(help="Type of the input: int64 for tokens.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a predictor; the bundled one if none.")] = None,
    seq: options.Seq = None,
    data: options.Data = None,
    tensor: options.Tensor = None,
    pipeline: options.Pipeline = None,
    virtual_pipeline: options.VirtualPipeline = None,
    context: options.Context = None,
    expert: options.Expert = None,
    expert_tensor: options.ExpertTensor = None,
    zero: options.Zero = None,
    sharding: options.Sharding = None,
    micro_batch: options.MicroBatch = None,
    accumulate: options.Accumulate = None,
    global_batch: options.GlobalBatch = None,
    lora: options.Rank = None,
    bits: options.Bits = None,
    offload: options.Offload = None,
    cross_entropy: options.Loss = None,
    kernels: options.Kernels = None,
    experts: options.Experts = None,
    stack_year: options.StackYear = None,
    json: options.AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict step time and memory of a network, the probability that it fits, and the largest batch.

    Runs the Python file that builds the network, with all that it does.

    Example: gpudemand cost model.py:build_model --input 3x224x224 --batch 64 --device H200
    """
    from gpudemand.cli.networks import (
        format_prediction,
        is_configuration,
        large_job,
        prediction_json,
        refuse,
        traced_job,
    )
    from gpudemand.cost.model import CostModel

    about = {"optimizer": optimizer, "precision": precision, "device": device, "batch_size": batch, "mode": mode}
    about |= {"micro_batch": micro_batch, "accumulate": accumulate}
    about |= {"checkpointing": "full" if checkpointing else "selective" if selective else None}
    degrees = {"data": data, "tensor": tensor, "pipeline": pipeline, "virtual_pipeline": virtual_pipeline}
    degrees |= {"context": context, "expert": expert, "expert_tensor": expert_tensor}
    large: dict[str, Any] = {
        "lora": lora,
        "bits": bits,
        "offload": offload,
        "cross_entropy": cross_entropy,
        "kernels": kernels,
    }
    large |= {"experts": experts, "global_batch": global_batch, "stack_year": stack_year}
    with steps(quiet=quiet) as begin:
        if is_configuration(network):
            refuse({"input": input, "layout": layout, "dtype": dtype}, "networks that a file builds")
            job = large_job(network, seq, gpus, degrees, **about, **large, zero=zero, sharding=sharding)
        else:
            refuse({"seq": seq, **degrees, **large}, "large models")
            begin(f"Running {network.rpartition(':')[0]} to build the network")
            given = {name: value for name, value in about.items() if value is not None}
            job = traced_job(network, input, zero, sharding, **given, layout=layout, input_dtype=dtype, n_gpus=gpus)
            begin("Tracing the network")
            job.graph.flops  # noqa: B018 (traced here, under its own progress message)
        begin("Predicting")
        table = (prediction_json if json else format_prediction)(CostModel.load(model), job)
    typer.echo(table)


@one_line
def devices(json: options.AsJson = False) -> None:
    """List the GPUs and CPUs that costs can be predicted for: memory, bandwidth, and peaks by precision.

    Example: gpudemand devices
    """
    from gpudemand.datasets.devices import devices as table_of_devices
    from gpudemand.datasets.devices import format_devices

    typer.echo(table_of_devices().reset_index().to_json(orient="records") if json else format_devices())


@one_line
def calibrate(
    out: Annotated[Path, typer.Option(help="Folder that receives the predictor, for `gpudemand cost --model`.")],
    device: Annotated[
        str | None, typer.Option(help="Name in `gpudemand devices`; by default this machine's, measured if unknown.")
    ] = None,
    on: Annotated[str, typer.Option(help="cpu or cuda: device of the micro-benchmark, about twenty seconds.")] = "cpu",
    model: Annotated[
        Path | None, typer.Option(help="Folder of a predictor to start from; the bundled one if none.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Calibrate the predictor to a device with a few jobs measured on it.

    Example: gpudemand calibrate --device H200 --on cuda --out mine
    """
    from gpudemand._files import check_replaceable
    from gpudemand.cost.calibrate import calibrate_device, find_or_measure, format_calibration, micro_benchmark
    from gpudemand.cost.model import MANIFEST, CostModel
    from gpudemand.datasets.devices import device as find_device
    from gpudemand.datasets.devices import save_device

    check_replaceable(out, MANIFEST)  # before the measurement
    predictor = CostModel.load(model)
    with steps(quiet=quiet) as begin:
        if device is not None:
            find_device(device)  # before the measurement, which takes longer
        else:
            begin("Looking up this device, or measuring it")
            own, measured_now = find_or_measure(on)
            device = own.name
            if measured_now:
                save_device(own)
        begin("Measuring four small networks")
        jobs, seconds = micro_benchmark(device, on)
        begin("Calibrating")
        table = calibrate_device(predictor, jobs, seconds)
    predictor.save(out)
    typer.echo(format_calibration(table))


@takes_log_options
@one_line
def costs_against_log(
    ctx: typer.Context,
    log: Annotated[Path, typer.Argument(help="Job log or store.", show_default=False)],
    networks: Annotated[
        Path,
        typer.Option(
            help="TOML file with a table for each network, called as in the log: model = "
            '"package.module:function", input = [3, 224, 224]. The code is run.'
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the predictor, calibrated with these jobs: `costs` in a plan.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a predictor; the bundled one if none.")] = None,
    json: options.AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare predicted run times with what the training jobs of a log took, by network and GPU type.

    Of the jobs, the log must tell network, batch_size, epochs and samples.

    Example: gpudemand costs-against-log jobs.parquet --networks networks.toml --out mine
    """
    from gpudemand._files import check_replaceable
    from gpudemand._validation import InputError
    from gpudemand.cli.networks import format_ratios
    from gpudemand.cost.model import MANIFEST, CostModel
    from gpudemand.planning.training_run_time import CostStepTime
    from gpudemand.planning.training_run_time import costs_against_log as compare
    from gpudemand.study.plan_file import read_networks
    from gpudemand.usage.read import read_log

    if out is not None:
        check_replaceable(out, MANIFEST)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = read_log(log, **log_options(ctx.params))
        begin("Tracing the networks")
        predictor = CostModel.load(model)
        named = "network" in jobs and jobs["network"].notna().any()  # else there is nothing to trace for
        costs = CostStepTime(predictor, read_networks(networks) if named else {})
        begin("Comparing run times")
        known = costs.knows(jobs)
        if not known.any():
            raise InputError(f"no job of the log names a network of {networks.name}, its batch_size and its GPU type.")
        table = compare(jobs[known], costs)
        if out is not None:
            begin("Calibrating")
            costs.calibrate(jobs)
            predictor.save(out)
    typer.echo(table.to_json(orient="records") if json else format_ratios(table))
