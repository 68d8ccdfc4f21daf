"""What the products of a step take alone: `python -m benchmarks.limit gpt2`, and a column of benchmarks.compare.

A step is run once by eager, and every product, convolution and attention in it is noted with the sizes, strides and dtypes of its operands.
Each is then timed by itself, over and over, by the best call of the library that is known: as eager wrote it, with the weight packed by
oneDNN, channels-last, or with sizes that are multiples of eight. The sum is what is left of a step when everything else costs nothing: a
bound for who takes the library's products.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
import typer
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models import build, names_of

PRODUCTS = frozenset(
    "mm addmm bmm baddbmm convolution convolution_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_cudnn_attention_backward".split()
)
SECONDS = 0.03
"""For one call of one candidate."""


@dataclass(frozen=True)
class Operand:
    """A tensor, but for what it holds."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> Operand:
        return Operand(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)

    def make(self) -> torch.Tensor:
        found = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=self.device)
        return found.uniform_(-1, 1) if self.dtype.is_floating_point else found.zero_()


@dataclass(frozen=True)
class Product:
    """A call of the library."""

    op: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]


class _Noted(TorchDispatchMode):
    """Counts the products that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            self.found[Product(func, _frozen(args), tuple(_frozen(sorted((kwargs or {}).items()))))] += 1
        return func(*args, **(kwargs or {}))


def _frozen(value: Any) -> Any:
    """Arguments as something to count by: tensors as Operands, lists as tuples."""
    if isinstance(value, torch.Tensor):
        return Operand.of(value)
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def products_of(step: Callable[[], Any]) -> Counter[Product]:
    """The products of one call of an eager step, backward included; those of nn.MultiheadAttention's one operator apart."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with _Noted() as noted:
            step()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return noted.found


Call = Callable[[], Any]


def as_written(product: Product) -> Call:
    """As eager calls it, on random operands."""
    arguments, keywords = _made(product.arguments), dict(_made(product.keywords))
    return lambda: product.op(*arguments, **keywords)


def channels_last(product: Product) -> Call:
    """A convolution, or its gradient, of images and windows whose channels lie next to each other."""
    turned = [v.contiguous(memory_format=torch.channels_last) if isinstance(v, torch.Tensor) and v.ndim == 4 else v
              for v in _made(product.arguments)]  # fmt: skip
    return lambda: product.op(*turned)


def convolution_by_onednn(product: Product, memory_format: torch.memory_format = torch.contiguous_format) -> Call:
    """With packed windows."""
    x, weight, bias, stride, padding, dilation, _, _, groups = _made(product.arguments)
    lists = [list(v) for v in (padding, stride, dilation)]
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), *lists, groups, list(x.shape))
    x = x.contiguous(memory_format=memory_format)
    return lambda: torch.ops.mkldnn._convolution_pointwise(x, packed, bias, *lists, groups, "none", [], "")


def product_by_onednn(product: Product) -> Call:
    """The second operand as the packed weight of a linear layer."""
    *bias, x, other = _made(product.arguments)
    packed = torch.ops.mkldnn._reorder_linear_weight(other.t().contiguous(), x.shape[0])
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, bias[0] if bias else None, "none", [], "")


def product_by_mkl(product: Product) -> Call:
    """Like product_by_onednn."""
    *bias, x, other = _made(product.arguments)
    weight, rows = other.t().contiguous(), x.shape[0]
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
    return lambda: torch.ops.mkl._mkl_linear(x, packed, weight, bias[0] if bias else None, rows)


def aligned(product: Product) -> Call:
    """With sizes of a multiple of eight, in the same order of axes: what kernels for tensor cores take without a slow path."""

    def wider(value: Any) -> Any:
        if not isinstance(value, Operand):
            return value
        sizes = tuple(-(-size // 8) * 8 for size in value.sizes)
        strides = (1, sizes[0]) if len(sizes) == 2 and value.strides[0] < value.strides[1] else (*sizes[1:], 1)
        return Operand(sizes, strides, value.dtype, value.device)

    arguments = _made(tuple(map(wider, product.arguments)))
    return lambda: product.op(*arguments)


def _made(arguments: Any) -> Any:
    """Random tensors in the place of operands."""
    if isinstance(arguments, Operand):
        return arguments.make()
    return tuple(map(_made, arguments)) if isinstance(arguments, tuple) else arguments


def candidates(product: Product, device: str) -> list[Callable[[Product], Call]]:
    """How a product may be computed by the library, first as eager does it; what a build of torch lacks raises when it is made or called."""
    name = product.op.overloadpacket.__name__
    found: list[Callable[[Product], Call]] = [as_written]
    if name.startswith("convolution") and len(product.arguments[0].sizes) == 4:
        found.append(channels_last)
        if name == "convolution" and device == "cpu" and not product.arguments[6]:
            found += [convolution_by_onednn, partial(convolution_by_onednn, memory_format=torch.channels_last)]
    elif name in ("mm", "addmm") and device == "cpu" and not product.keywords:
        found += [product_by_onednn, product_by_mkl]
    elif name in ("mm", "addmm") and not product.keywords:
        found.append(aligned)
    return found


def seconds_of(call: Callable[[], Any], device: str) -> float:
    """The median of single calls on a CPU; on a GPU of rows of calls, so that the host's time does not count."""
    call()
    if device == "cpu":
        found: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(found) < 3 or (time.perf_counter() < end and len(found) < 200):
            started = time.perf_counter()
            call()
            found.append(time.perf_counter() - started)
        return statistics.median(found)
    begin, end_of_row = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    rows = []
    for _ in range(5):
        begin.record()
        for _ in range(10):
            call()
        end_of_row.record()
        torch.cuda.synchronize()
        rows.append(begin.elapsed_time(end_of_row) / 1e4)
    return min(rows)


def best_of(product: Product, device: str) -> tuple[float, str]:
    """Seconds, and which candidate takes them."""
    found = []
    with torch.no_grad():
        for candidate in candidates(product, device):
            name = getattr(candidate, "__name__", "convolution_by_onednn, channels-last")
            try:
                found.append((seconds_of(candidate(product), device), name))
            except (RuntimeError, AttributeError):
                if candidate is as_written:
                    raise
    return min(found)


def limit_of(step: Callable[[], Any], device: str) -> float:
    """Seconds that the products of an eager step take, each alone and by the best call."""
    return sum(count * best_of(product, device)[0] for product, count in products_of(step).items())


def main(
    names: Annotated[str, typer.Argument(help="comma-separated models of benchmarks/models.py, all, or more")] = "all",
    device: str = "cpu",
    dtype: str = "fp32",
    scale: str = "small",
    training: bool = False,
) -> None:
    """Prints milliseconds of the products of each model's step, by kind of product."""
    from benchmarks.worker import DTYPES, Step

    for name in names_of(names):
        model, inputs = build(name, scale, device, DTYPES[dtype], training)
        kinds: dict[str, float] = {}
        for product, count in products_of(Step(model, inputs, training)).items():
            seconds, how = best_of(product, device)
            kind = f"{product.op.overloadpacket.__name__} {how}"
            kinds[kind] = kinds.get(kind, 0.0) + count * seconds * 1e3
        parts = ", ".join(f"{kind} {ms:.2f}" for kind, ms in sorted(kinds.items(), key=lambda item: -item[1]))
        print(f"{name}: {sum(kinds.values()):.2f} ms ({parts})", flush=True)


if __name__ == "__main__":
    typer.run(main)
