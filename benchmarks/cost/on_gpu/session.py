"""Training steps of any module, measured like those of the zoo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from benchmarks.measure.torch_session import TorchSession
from gpudemand.cost import TrainingJob


@dataclass(frozen=True)
class Measured:
    """A `Decoder` or an `OneOperator` on a device, with what `TorchSession` asks of a configuration."""

    design: Any
    device: str
    seed: int = 0
    threads: int = 0
    channels: ClassVar[int] = 0
    layout: ClassVar[str] = "contiguous"
    execution: ClassVar[str] = "eager"

    @property
    def precision(self) -> str:
        """Of the design."""
        return str(self.design.precision)

    @property
    def optimizer(self) -> str:
        """Of the design."""
        return str(self.design.optimizer)


class ModuleSession(TorchSession):
    """Forward pass, backward pass from a gradient of ones, and optimizer step."""

    def __init__(self, job: Measured) -> None:
        super().__init__(job, job.design.build)

    def _make_batch(self) -> tuple[Any, Any]:
        inputs = [tensor.to(self._device) for tensor in self._job.design.inputs()]
        with torch.no_grad(), self._autocast():
            out = self._model(*inputs)
        return inputs, torch.ones_like(out)

    def _step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            out = self._forward(*self._x)
        out.backward(self._y)
        self._optimizer.step()


def predicted_job(design: Any, device: str) -> TrainingJob:
    """The job whose cost is compared with a measured design; its module is on the meta device."""
    options = design.traced()
    return TrainingJob(
        batch_size=design.batch_size,
        optimizer=design.optimizer,
        precision=design.precision,
        device=device,
        **options,
    )
