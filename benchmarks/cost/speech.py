"""Speech networks of the published sizes: Tacotron 2, WaveGlow, Deep Speech 2, Jasper, QuartzNet."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def _conv(inputs: int, outputs: int, kernel: int, activation: nn.Module) -> nn.Module:
    parts = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2), nn.BatchNorm1d(outputs), activation
    return nn.Sequential(*parts, nn.Dropout(0.5))


class Tacotron(nn.Module):
    """Text to spectrogram, one frame after the other; `frames` spectrogram frames for `letters` letters."""

    def __init__(self, frames: int, letters: int = 150) -> None:
        super().__init__()
        self.letters, self.frames = nn.Embedding(148, 512), frames
        self.encoder = nn.Sequential(*[_conv(512, 512, 5, nn.ReLU()) for _ in range(3)])
        self.both = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
        self.before = nn.Sequential(nn.Linear(80, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.listen, self.speak = nn.LSTMCell(768, 1024), nn.LSTMCell(1536, 1024)
        self.query, self.memory = nn.Linear(1024, 128, bias=False), nn.Linear(512, 128, bias=False)
        self.places, self.place = nn.Conv1d(2, 32, 31, padding=15, bias=False), nn.Linear(32, 128, bias=False)
        self.score, self.mel, self.gate = nn.Linear(128, 1, bias=False), nn.Linear(1536, 80), nn.Linear(1536, 1)
        shapes = [(80, 512), (512, 512), (512, 512), (512, 512), (512, 80)]
        self.after = nn.Sequential(*[_conv(a, b, 5, nn.Tanh()) for a, b in shapes])

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        encoded = self.encoder(self.letters(tokens).transpose(1, 2)).transpose(1, 2)
        memory = self.both(encoded)[0]
        keys = self.memory(memory)
        frames = self.before(memory.new_zeros(self.frames, tokens.shape[0], 80) + memory[:1, :1, :1])
        weights = summed = keys[..., 0] * 0
        context, first, second, out = memory[:, 0], None, None, []
        for frame in frames:
            first = self.listen(torch.cat([frame, context], dim=-1), first)
            place = self.place(self.places(torch.stack([weights, summed], dim=1)).transpose(1, 2))
            scores = self.score(torch.tanh(self.query(functional.dropout(first[0])).unsqueeze(1) + place + keys))
            weights = scores.squeeze(-1).softmax(-1)
            summed = summed + weights
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            second = self.speak(torch.cat([first[0], context], dim=-1), second)
            out.append(torch.cat([functional.dropout(second[0]), context], dim=-1))
        heard = torch.stack(out, dim=1)
        mel = self.mel(heard).transpose(1, 2)
        return mel + self.after(mel), self.gate(heard)


class Wave(nn.Module):
    """One coupling network of WaveGlow."""

    def __init__(self, inputs: int, width: int = 512, layers: int = 8) -> None:
        super().__init__()
        self.start, self.end = nn.Conv1d(inputs, width, 1), nn.Conv1d(width, 2 * inputs, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**i, padding=2**i) for i in range(layers))
        self.conditions = nn.Conv1d(640, 2 * width * layers, 1)
        self.skips = nn.ModuleList(nn.Conv1d(width, width if i == layers - 1 else 2 * width, 1) for i in range(layers))

    def forward(self, x: Any, spectrum: Any) -> Any:
        """Forward pass."""
        x, conditions, total = self.start(x), self.conditions(spectrum).chunk(len(self.gates), dim=1), None
        for gate, condition, skip in zip(self.gates, conditions, self.skips, strict=True):
            left, right = (gate(x) + condition).chunk(2, dim=1)
            parts = skip(torch.tanh(left) * torch.sigmoid(right)).chunk(2 if skip.out_channels > 512 else 1, dim=1)
            total = parts[-1] if total is None else total + parts[-1]
            x = x + parts[0]
        return self.end(total).chunk(2, dim=1)


class WaveGlow(nn.Module):
    """Twelve invertible flows over audio in groups of eight samples."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(80, 80, 1024, stride=256)
        sizes = [8 - 2 * (i // 4) for i in range(12)]
        self.mix = nn.ModuleList(nn.Conv1d(n, n, 1, bias=False) for n in sizes)
        self.waves = nn.ModuleList(Wave(n // 2) for n in sizes)

    def forward(self, audio: Any) -> Any:
        """Forward pass."""
        n = audio.shape[1]
        spectrum = self.up(audio[:, : 80 * (n // 256)].unflatten(1, (80, -1)))[..., :n]
        spectrum = functional.pad(spectrum, (0, n - spectrum.shape[-1])).unflatten(-1, (-1, 8))
        spectrum = spectrum.transpose(1, 2).flatten(2).transpose(1, 2)
        x, early = audio.unflatten(1, (-1, 8)).transpose(1, 2).contiguous(), []
        for i, (mix, wave) in enumerate(zip(self.mix, self.waves, strict=True)):
            if i in (4, 8):
                early.append(x[:, :2])
                x = x[:, 2:]
            a, b = mix(x).chunk(2, dim=1)
            shift, scale = wave(a, spectrum)
            x = torch.cat([a, torch.exp(scale) * b + shift], dim=1)
        return torch.cat([*early, x], dim=1)


class DeepSpeech(nn.Module):
    """Two convolutions over a spectrogram and five recurrent layers."""

    def __init__(self, width: int = 800, layers: int = 5) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.layers = nn.ModuleList(
            nn.LSTM(1312 if i == 0 else width, width, bidirectional=True, batch_first=True) for i in range(layers)
        )
        self.head = nn.Linear(width, 29)

    def forward(self, spectrum: Any) -> Any:
        """Forward pass."""
        x = self.convs(spectrum).flatten(1, 2).transpose(1, 2)
        for layer in self.layers:
            left, right = layer(x)[0].chunk(2, dim=-1)
            x = left + right
        return self.head(x)


class Jasper(nn.Module):
    """Blocks of convolutions over time; each takes what all earlier ones gave, or (QuartzNet) the last one."""

    def __init__(self, blocks: list[tuple[int, int]], last: tuple[int, int, int], *, separable: bool) -> None:
        super().__init__()
        self.dense, width = not separable, 256
        self.stem = self._unit(64, width, blocks[0][1] if separable else 11, separable, stride=2)
        self.blocks, self.skips, inputs = nn.ModuleList(), nn.ModuleList(), [width]
        for outputs, kernel in blocks:
            units = [self._unit(inputs[-1] if i == 0 else outputs, outputs, kernel, separable) for i in range(5)]
            self.blocks.append(nn.Sequential(*units[:-1], units[-1][:-2]))
            known = inputs if self.dense else inputs[-1:]
            skips = [nn.Sequential(nn.Conv1d(n, outputs, 1, bias=False), nn.BatchNorm1d(outputs)) for n in known]
            self.skips.append(nn.ModuleList(skips))
            inputs = [*inputs, outputs]
        first, kernel, second = last
        ends = [self._unit(inputs[-1], first, kernel, separable, dilation=2), self._unit(first, second, 1, False)]
        self.end = nn.Sequential(*ends, nn.Conv1d(second, 29, 1))
        self.act = nn.Sequential(nn.ReLU(), nn.Dropout(0.2))

    @staticmethod
    def _unit(a: int, b: int, kernel: int, separable: bool, stride: int = 1, dilation: int = 1) -> nn.Sequential:
        options = {"stride": stride, "padding": dilation * (kernel // 2), "dilation": dilation, "bias": False}
        convs = [nn.Conv1d(a, a if separable else b, kernel, groups=a if separable else 1, **options)]
        convs += [nn.Conv1d(a, b, 1, bias=False)] * separable
        return nn.Sequential(*convs, nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.2))

    def forward(self, spectrum: Any) -> Any:
        """Forward pass."""
        known = [self.stem(spectrum)]
        for block, skips in zip(self.blocks, self.skips, strict=True):
            x = block(known[-1])
            for skip, earlier in zip(skips, known if self.dense else known[-1:], strict=True):
                x = x + skip(earlier)
            known.append(self.act(x))
        return self.end(known[-1])


_JASPER = [(256, 11), (384, 13), (512, 17), (640, 21), (768, 25)]
_QUARTZ = [(256, 33), (256, 39), (512, 51), (512, 63), (512, 75)]


def _repeated(blocks: list[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    return [block for block in blocks for _ in range(n)]


NETWORKS = {
    "jasper": lambda frames: (Jasper(_repeated(_JASPER, 2), (896, 29, 1024), separable=False), (64, frames), None),
    "quartznet": lambda frames: (Jasper(_repeated(_QUARTZ, 3), (512, 87, 1024), separable=True), (64, frames), None),
    "tacotron2": lambda frames: (Tacotron(frames), (150,), "int64"),
    "waveglow": lambda samples: (WaveGlow(), (samples,), None),
    "deepspeech2": lambda frames: (DeepSpeech(), (1, 161, frames), None),
}
