"""What a library call, or a core, moves and computes, where its sizes say so."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.buffer import BufferLayout, BufferView, ExternNode
from ..ir.cores import GEMM
from ..ir.index import Size, product

__all__ = ["core_flops", "library_bytes", "library_flops", "operator_name"]

Views = Sequence[BufferView]
Layouts = Sequence[BufferLayout]


def operator_name(node: ExternNode) -> str:
    """What a call runs, for a reader: "mm", "packed_convolution", "gemm"."""
    text = node.target.partition("(")[0].removesuffix(".default")
    for start in ("torch.ops.", "prims.", "torch."):
        text = text.removeprefix(start)
    parts = text.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else "::".join(parts[:2])


def library_bytes(node: ExternNode, buffers: Mapping[str, Any]) -> Size:
    """Of the windows that it reads, and of what it makes or writes to, each once."""
    views = [view for value in (*node.args, *(v for _, v in node.kwargs)) for view in _views(value)]
    read: Size = sum((product(v.sizes) * buffers[v.buffer].layout.dtype.itemsize for v in views if v.buffer in buffers), start=0)
    made = [buffers[name].layout for name in node.outputs if name is not None and name in buffers]
    return read + sum((layout.numel() * layout.dtype.itemsize for layout in made), start=0)


def library_flops(node: ExternNode, buffers: Mapping[str, Any]) -> Size | None:
    """Two for each term of a product, none for what only moves; None where no row knows the operator."""
    name = operator_name(node)
    made = [buffers[n].layout for n in node.outputs if n is not None and n in buffers]
    if name in MOVES or not any(layout.dtype.is_floating_point or layout.dtype.is_complex for layout in made):
        return 0
    rule = next((rule for start, rule in FLOPS.items() if name.startswith(start)), None)
    if rule is None or not made:
        return None
    try:
        return rule(node.args, made)
    except (IndexError, AttributeError, TypeError):  # an overload with other arguments
        return None


def core_flops(core: str, operands: Views) -> Size:
    """Of the products of a core; what it computes of each element beside is not counted."""
    if core not in CORE_PRODUCTS:
        return 0
    first, widths = CORE_PRODUCTS[core]
    q, k, v = operands[first : first + 3]
    scores = product(q.sizes[:-1]) * k.sizes[-2]
    return 2 * scores * (widths[0] * q.sizes[-1] + widths[1] * v.sizes[-1])


def _product(args: Sequence[Any], made: Layouts) -> Size:
    """The first operand's last dim is summed over."""
    return 2 * made[0].numel() * args[0].sizes[-1]


def _product_and_sum(args: Sequence[Any], made: Layouts) -> Size:
    return _product(args[1:], made)


def _convolution(args: Sequence[Any], made: Layouts) -> Size:
    x, w, transposed = args[0], args[1], args[6]
    return 2 * (product(x.sizes) if transposed else made[0].numel()) * product(w.sizes[1:])


def _packed_convolution(args: Sequence[Any], made: Layouts) -> Size:
    window = next(view for view in args[2:] if len(view.sizes) > 2)
    return 2 * made[0].numel() * product(window.sizes[1:])


def _convolution_backward(args: Sequence[Any], made: Layouts) -> Size:
    grad, x, w, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    return 2 * (product(x.sizes) if transposed else product(grad.sizes)) * product(w.sizes[1:]) * sum(map(bool, mask[:2]))


def _attention(args: Sequence[Any], made: Layouts) -> Size:
    return core_flops("attention", args)


def _attention_backward(args: Sequence[Any], made: Layouts) -> Size:
    return core_flops("attention_queries", args) + core_flops("attention_keys", args)


Rule = Callable[[Sequence[Any], Layouts], Size]
FLOPS: Mapping[str, Rule] = {
    "convolution_backward": _convolution_backward,
    "convolution": _convolution,
    "packed_convolution": _packed_convolution,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "_scaled_dot_product": _attention,
    "addmm": _product_and_sum,
    "baddbmm": _product_and_sum,
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "_int_mm", "packed_linear", GEMM), _product),
}
"""How names of operators begin -> how many operations their products take; the first that fits counts."""

MOVES = frozenset(
    "empty restride in_memory copy_into clone reshape permute cat index_select index gather scatter index_put embedding slice select"
    " as_strided view_as_real view_as_complex sort topk nonzero rand randn randint bernoulli randperm rand_like randn_like native_dropout"
    " uniform normal max_pool max_pool_backward upsample_nearest2d".split()
)
"""Operators that move, compare or draw elements."""

CORE_PRODUCTS: Mapping[str, tuple[int, tuple[int, int]]] = {
    "attention": (0, (1, 1)),
    "attention_decode": (0, (1, 1)),
    "attention_queries": (1, (2, 1)),
    "attention_keys": (1, (2, 2)),
    **dict.fromkeys((f"attention_sums_of_{along}" for along in ("queries", "keys", "distances")), (1, (1, 1))),
}
"""Core -> where its queries, keys and values begin among its operands, and how many products it makes of each score along the width of keys and
of values."""


def _views(value: Any) -> list[BufferView]:
    if isinstance(value, BufferView):
        return [value]
    return [view for part in value for view in _views(part)] if isinstance(value, (tuple, list)) else []
