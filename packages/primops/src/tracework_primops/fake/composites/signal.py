"""Composites: short-time Fourier transforms, and what asks for data on the way."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...errors import DataDependentError
from .registry import composite

aten = torch.ops.aten
UNNORMALIZED, BY_ROOT = 0, 1  # of the transform's result, as the kernels count


def _windows(x: torch.Tensor, window: torch.Tensor | None, n_fft: int, length: int) -> torch.Tensor | None:
    """The window in the middle of n_fft elements; None when it would be all ones."""
    if length == n_fft:
        return window
    left = (n_fft - length) // 2
    ones = torch.ones(length, dtype=x.dtype, device=x.device) if window is None else window
    return F.pad(ones, [left, n_fft - length - left])


@composite("stft")
def stft(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> torch.Tensor:
    """Frames as a strided view, times the window, transformed."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    complex_input = x.is_complex() or window is not None and window.is_complex()
    if return_complex is None and not complex_input or align_to_window or x.dim() not in (1, 2):
        return NotImplemented
    if not (0 < n_fft and 0 < hop and 0 < length <= n_fft) or not (x.is_floating_point() or x.is_complex()):
        return NotImplemented
    if window is not None and (window.dim() != 1 or window.shape[0] != length):
        return NotImplemented
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    if rows.shape[1] < n_fft:
        return NotImplemented
    frames = rows.unfold(1, n_fft, hop)
    shown = _windows(x, window, n_fft, length)
    frames = frames if shown is None else frames * shown
    how = BY_ROOT if normalized else UNNORMALIZED
    if frames.is_complex():
        if onesided:
            return NotImplemented
        out = aten._fft_c2c.default(frames, [2], how, True)
    else:
        out = aten._fft_r2c.default(frames, [2], how, onesided is not False)
    out = out.transpose(1, 2)
    out = out.squeeze(0) if x.dim() == 1 else out
    wanted = complex_input if return_complex is None else return_complex
    return out if wanted else torch.view_as_real(out)


@composite("stft.center")
def stft_center(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    *rest: Any,
) -> torch.Tensor:
    """The signal is padded by half a window at both ends, so that frames are centred."""
    if x.dim() not in (1, 2):
        return NotImplemented
    if center:
        x = F.pad(x.reshape([1] * (3 - x.dim()) + list(x.shape)), [n_fft // 2] * 2, pad_mode).reshape([*x.shape[:-1], -1])
    return aten.stft.default(x, n_fft, hop_length, win_length, window, *rest)


def _asks_data(name: str) -> None:
    def form(*args: Any, **kwargs: Any) -> Any:
        raise DataDependentError(f"aten.{name}.default")

    composite(name)(form)


_asks_data("istft")  # looks at a sum of weights before it divides by it
