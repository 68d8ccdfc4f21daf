"""Python that is traced in place of functions of libraries: of torch those that ask data which way to go, where both ways are computed
and the data choose, and operators of exported programs that switch modes or take functions; of logging those that take locks to remember answers; of the
interpreter what its messages say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._torch.functions import (
    PositiveDefinite,
    PositiveSemidefinite,
    Symmetric,
    asserts_all,
    int_mm,
    is_all_true,
    text_of_failed_check,
)
from .._torch.operators import (
    associative_scan_op,
    generic_associative_scan,
    map_impl,
    map_steps,
    out_dtype,
    scan,
    scan_op,
    while_loop,
    while_loop_op,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)
from . import NotComputed, polyfill


@polyfill(PositiveDefinite.check, PositiveSemidefinite.check)
def definite_check(self: Any, value: torch.Tensor) -> torch.Tensor:
    """check() of torch.distributions' constraints on positive definite and semidefinite matrices."""
    symmetric: torch.Tensor = Symmetric.check(self, value)
    if value.shape[-1] != value.shape[-2]:
        return symmetric
    if isinstance(self, PositiveDefinite):
        found = torch.linalg.cholesky_ex(value).info.eq(0)
    else:
        found = torch.linalg.eigvalsh(value).ge(0).all(-1)
    return torch.where(symmetric.all(), found, symmetric)


@polyfill(asserts_all)
def all_true(valid: torch.Tensor, error_message: object) -> torch.Tensor:
    """What distributions ask about the values they are given: the data, so that the branch on it is one on data."""
    return is_all_true(valid)


def all_checked(error_type: type[Exception], cond: torch.Tensor, message: Callable[[], object] | None = None) -> None:
    """torch._check_tensor_all_with, of a tensor of bools."""
    if not is_all_true(cond):
        raise error_type(text_of_failed_check() if message is None else str(message()))


@polyfill(logging.Logger.isEnabledFor)
def is_enabled_for(self: Any, level: int) -> bool:
    """Logger.isEnabledFor"""
    return not self.disabled and self.manager._disable < level and level >= self.getEffectiveLevel()


@polyfill(logging.Logger.getEffectiveLevel)
def effective_level(self: Any) -> int:
    """Logger.getEffectiveLevel"""
    while self is not None:
        if self.level:
            level: int = self.level
            return level
        self = self.parent
    return logging.NOTSET


def listeners(self: Any) -> list[Any]:
    """The filters and handlers that a record of a logger comes to."""
    found: list[Any] = []
    while self is not None:
        found += self.filters
        for handler in self.handlers:
            found += [handler, *handler.filters]
        self = self.parent if self.propagate else None
    return found


def name_of_called(function: Any) -> str:
    """What CPython's messages about starred arguments call the function that gets them."""
    try:
        name = function.__qualname__
    except AttributeError:
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module is None or module == "builtins" else f"{module}.{name}()"


@polyfill(torch.istft)
def istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """torch.istft; what it refuses, and what only warns, is left to torch."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not (input.is_complex() and input.dim() in (2, 3) and input.numel() and 0 < hop <= width <= n_fft):
        return torch.ops.aten.istft(
            input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
        )
    half, frames = input.shape[-2] == n_fft // 2 + 1, input.shape[-1]
    one_side = half and input.shape[-2] != n_fft if onesided is None else onesided
    whole, start = n_fft + hop * (frames - 1), n_fft // 2 if center else 0
    end = (start + length if length is not None else -start) if center or length is not None else whole
    fits = window is None or window.dim() == 1 and window.shape[0] == width and not (window.is_complex() and not return_complex)
    if not (half if one_side else input.shape[-2] == n_fft) or one_side and return_complex or not fits or end > whole:
        return torch.ops.aten.istft(
            input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
        )
    spectra = torch.view_as_complex(torch.view_as_real(input).transpose(-3, -2))  # as torch does, for gradients laid out alike
    norm = "ortho" if normalized else "backward"
    if return_complex:
        pieces = torch.fft.ifft(spectra, dim=-1, norm=norm)
    else:
        pieces = torch.fft.irfft(spectra if one_side else spectra[..., : n_fft // 2 + 1], n=n_fft, dim=-1, norm=norm)
    shown = torch.ones(width, dtype=pieces.dtype, device=input.device) if window is None else window
    if width != n_fft:
        left = (n_fft - width) // 2
        shown = torch.nn.functional.pad(shown, (left, n_fft - width - left))
    pieces = (pieces * shown).unsqueeze(0) if input.dim() == 2 else pieces * shown
    signal = torch.ops.aten.unfold_backward(pieces, (pieces.shape[0], whole), 1, n_fft, hop)[:, start:end]
    weights = torch.ops.aten.unfold_backward(shown.pow(2).expand(1, frames, n_fft), (1, whole), 1, n_fft, hop)[:, start:end]
    if weights.abs().min() < 1e-11:
        raise RuntimeError("istft: the windows leave a part of the signal out")
    found = signal / weights
    return found.squeeze(0) if input.dim() == 2 else found


@polyfill(wrap_with_autocast)
def under_autocast(
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    function: Callable[..., Any],
    *args: Any,
) -> Any:
    """The operator wrap_with_autocast."""
    with torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        return function(*args)


@polyfill(wrap_with_set_grad_enabled)
def with_grad_mode(enabled: bool, function: Callable[..., Any], *args: Any) -> Any:
    """The operator wrap_with_set_grad_enabled."""
    with torch.set_grad_enabled(enabled):
        return function(*args)


def cast_first(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any) -> Any:
    """flex_attention under autocast: operands in its dtype, and nothing inside is cast."""
    kind = query.device.type
    dtype = torch.get_autocast_dtype(kind)
    cast = [t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key, value)]
    with torch.autocast(kind, enabled=False):
        return torch.ops.higher_order.flex_attention(*cast, *others)


def before_change(query: torch.Tensor, key: torch.Tensor, scale: float) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Of flex_attention: the scores that score_mod gets, and the four indices, each along a dim of its own."""
    groups = query.size(1) // key.size(1)
    key = torch.repeat_interleave(key, groups, dim=1) if groups != 1 else key
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    places = []
    for dim, size in enumerate(scores.shape):
        shape = [1, 1, 1, 1]
        shape[dim] = size
        places.append(torch.arange(0, size, device=scores.device).view(shape))
    return scores, places


@polyfill(while_loop_op)
def while_loop_of_lists(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Sequence[Any], others: Sequence[Any]
) -> Any:
    """The operator while_loop, whose functions read others after what is carried."""
    return while_loop(lambda *given: cond_fn(*given, *others), lambda *given: body_fn(*given, *others), tuple(carried))


@polyfill(scan_op)
def scan_of_lists(combine_fn: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any], others: Sequence[Any]) -> Any:
    """The operator scan, whose function gives what it carries and its results in one list."""
    count = len(init)

    def step(carried: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        found = tuple(combine_fn(*carried, *x, *others))
        return found[:count], found[count:]

    carried, results = scan(step, tuple(init), tuple(xs))
    return *carried, *results


@polyfill(map_impl)
def map_of_lists(function: Callable[..., Any], xs: Sequence[Any], others: Sequence[Any]) -> Any:
    """The operator behind map."""
    return map_steps(lambda x: tuple(function(*x, *others)), tuple(xs))


@polyfill(associative_scan_op)
def associative_scan(combine_fn: Callable[..., Any], xs: Sequence[Any], additional_inputs: Sequence[Any]) -> Any:
    """The operator behind associative_scan(combine_mode="pointwise"): what eager runs for it."""
    return generic_associative_scan(combine_fn, xs, additional_inputs=additional_inputs)


@polyfill(out_dtype)
def with_dtype_of_result(op: Any, output_dtype: torch.dtype, *args: Any) -> Any:
    """The operator out_dtype: products of int8 matrices on a GPU by their own kernel, all else in the dtype that operands and result promote to."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if any([t.dim() == 0 for t in tensors]) or torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise NotComputed("out_dtype of numbers in tensors, or of what requires a gradient, which it has none for")
    if (
        op is torch.ops.aten.mm.default
        and output_dtype == torch.int32
        and all([t.dtype == torch.int8 and t.is_cuda for t in tensors])
    ):
        return int_mm(*args)
    dtype = output_dtype
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    for number in args:
        if isinstance(number, (int, float, complex)):
            dtype = torch.result_type(torch.empty(1, dtype=dtype), number)
    return op(*[arg.to(dtype) if isinstance(arg, torch.Tensor) else arg for arg in args]).to(output_dtype)
