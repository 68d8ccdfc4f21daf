"""Convolutions that cut an image into patches without overlap, as vision transformers begin with, become matrix products.

On a GPU the library's kernels take channels in multiples of 16 bytes, last in memory; for images of three channels it copies the whole image
into that layout, with channels of zeros, and uses a sixteenth of its products for nothing but them. The rows of patches are written by
a loop here, and the product is in the layout in which a transformer reads it. bf16, 64 images of 224x224 in patches of 16x16 on an
H100: 0.63 ms by the library, 0.11 ms here, the gradient of the weight 0.42 and 0.11 ms.

In inference on a CPU so do those whose window is the whole image, as in squeeze-and-excite blocks, between images of one pixel: two cores of
an EPYC, four images, 480 channels to 120, 94 us with packed weights inside of mobilenetv3, and 25 more to see whether the weights changed; the
product takes 14, from weights as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from tracework_primops import PrimGraph, prims

from ..lowering.layout import is_row_major
from ..product_costs import ROW_BYTES, alignment
from .rewrites import built_before, rewritten, value_of

PLACES = {prims.convolution: (0, 1, 3), prims.convolution_backward: (1, 2, 4)}
"""prim -> positions of image, weight, and the first of the settings."""


def patch_products(graph: PrimGraph) -> PrimGraph:
    """The graph with products in the place of such convolutions and their gradients; the same object where there are none."""
    return rewritten(graph, lambda node: _cuts_patches(node, graph.role), _rewrite)


def _cuts_patches(node: Any, role: str) -> bool:
    if node.target not in PLACES:
        return False
    if node.target is prims.convolution_backward and not all(node.args[10][u.args[1]] for u in node.users):
        return False
    image, weight, first = PLACES[node.target]
    x, w = (node.args[n].meta["spec"] for n in (image, weight))
    stride, padding, dilation, transposed, _, groups = node.args[first : first + 6]
    if x.ndim != 4 or transposed or groups != 1:
        return False
    if not all(isinstance(s, int) for s in (*x.sizes[1:], *w.sizes)) or 0 in w.sizes:
        return False
    if any(padding) or not all(is_row_major(s.sizes, s.strides) for s in (x, w)):
        return False
    window, sides = tuple(w.sizes[2:]), tuple(x.sizes[2:])
    if any(d != 1 and k != 1 for d, k in zip(dilation, window, strict=True)):
        return False
    if window == sides and x.device.type == "cpu":
        return node.target is prims.convolution and role == "inference" and x.dtype == torch.float32
    if x.device.type != "cuda" or x.dtype.itemsize != 2:
        return False
    if tuple(stride) != window or any(side % k for side, k in zip(sides, window, strict=True)):
        return False
    few_channels = alignment(w.sizes[1], x.dtype.itemsize) < ROW_BYTES
    whole_rows = all(alignment(n, x.dtype.itemsize) >= ROW_BYTES for n in (w.numel() // w.sizes[0], w.sizes[0]))
    return few_channels and whole_rows and max(window) > 1


def _rewrite(node: Any) -> None:
    with built_before(node):
        (_convolution if node.target is prims.convolution else _gradients)(node)
    node.graph.erase_node(node)


def _convolution(node: Any) -> None:
    x, w, bias = (_value(a) for a in node.args[:3])
    rows, matrix = _patches(x, w), prims.permute(_flat(w), (1, 0))
    result = prims.mm(rows, matrix) if bias is None else prims.addmm(bias, rows, matrix)
    result = prims.permute(prims.reshape(result, (x.sizes[0], *_grid(x, w), w.sizes[0])), (0, 3, 1, 2))
    _replace(node, result)


def _gradients(node: Any) -> None:
    grad, x, w = (_value(a) for a in node.args[:3])
    rows = prims.reshape(prims.permute(grad, (0, 2, 3, 1)), (_count(x, w), w.sizes[0]))
    for user in list(node.users):
        _replace(user, GRADIENTS[user.args[1]](rows, x, w))
        user.graph.erase_node(user)


def _of_image(rows: Any, x: Any, w: Any) -> Any:
    (high, wide), (channels, *window) = _grid(x, w), w.sizes[1:]
    patches = prims.reshape(prims.mm(rows, _flat(w)), (x.sizes[0], high, wide, channels, *window))
    return prims.reshape(prims.permute(patches, (0, 3, 1, 4, 2, 5)), x.sizes)


def _of_weight(rows: Any, x: Any, w: Any) -> Any:
    return prims.reshape(prims.mm(prims.permute(rows, (1, 0)), _patches(x, w)), w.sizes)


def _of_bias(rows: Any, x: Any, w: Any) -> Any:
    return prims.sum(rows, (0,), False, None)


GRADIENTS: tuple[Callable[[Any, Any, Any], Any], ...] = (_of_image, _of_weight, _of_bias)


def _patches(x: Any, w: Any) -> Any:
    """(patches, elements of a patch)."""
    (high, wide), (channels, *window) = _grid(x, w), w.sizes[1:]
    cut = prims.reshape(x, (x.sizes[0], channels, high, window[0], wide, window[1]))
    return prims.reshape(prims.permute(cut, (0, 2, 4, 1, 3, 5)), (_count(x, w), channels * window[0] * window[1]))


def _flat(w: Any) -> Any:
    return prims.reshape(w, (w.sizes[0], w.numel() // w.sizes[0]))


def _grid(x: Any, w: Any) -> tuple[int, int]:
    """Patches along the height and the width."""
    return x.sizes[2] // w.sizes[2], x.sizes[3] // w.sizes[3]


def _count(x: Any, w: Any) -> Any:
    high, wide = _grid(x, w)
    return x.sizes[0] * high * wide


def _value(node: Any) -> Any:
    return None if node is None else value_of(node)


def _replace(node: Any, value: Any) -> None:
    value.node.meta["spec"] = node.meta["spec"]
    node.replace_all_uses_with(value.node)
