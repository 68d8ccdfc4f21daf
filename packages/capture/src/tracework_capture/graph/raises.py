"""Which exceptions an ATen operator may raise for some data where it did not on fakes, on the device that it runs on.

A kernel of a GPU that refuses an index ends the process; only what the host waits for is an exception there. Errors of memory are for no
data: any operator may raise them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tracework_primops import checks_indices

Raised = tuple[type[BaseException], ...]
"""Exceptions of these very classes; where Exception is among them, of any."""

ANYTHING: Raised = (Exception,)
OF_ATEN: Raised = (
    RuntimeError,
    NotImplementedError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    IndexError,
    ValueError,
)
OF_INDICES: Raised = (IndexError, RuntimeError)
OF_DIVISIONS: Raised = (RuntimeError,)
OF_DTYPES: Raised = (NotImplementedError,)

_DIVISIONS = frozenset("div floor_divide remainder fmod true_divide".split())
_QUIET = frozenset(
    "sum mean amax amin max min argmax argmin prod var std var_mean std_mean any all cumsum cumprod norm linalg_vector_norm logsumexp "
    "_softmax _log_softmax mm bmm addmm addmv baddbmm mv dot linear convolution native_layer_norm native_group_norm native_batch_norm "
    "cat stack clone copy _to_copy fill zero flip roll topk sort tril triu max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d "
    "ones zeros full empty empty_strided arange scalar_tensor ones_like zeros_like full_like empty_like new_ones new_zeros new_full "
    "new_empty native_dropout rand randn rand_like randn_like constant_pad_nd _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_unsafe_view _reshape_copy alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy split_with_sizes_copy "
    "squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy lift lift_fresh_copy unsafe_chunk unsafe_split "
    "unsafe_split_with_sizes repeat rot90 diag diag_embed trace select_scatter slice_scatter diagonal_scatter as_strided_scatter "
    "channel_shuffle pixel_shuffle pixel_unshuffle im2col col2im reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d masked_fill conv2d _convolution addr addbmm vdot dist hardswish gelu glu mish _prelu_kernel "
    "log_sigmoid_forward threshold _safe_softmax logcumsumexp cummax cummin aminmax nansum median nanmedian kthvalue mode "
    "_adaptive_avg_pool3d avg_pool3d adaptive_max_pool2d adaptive_max_pool3d max_pool3d_with_indices grid_sampler_2d grid_sampler_3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d mse_loss smooth_l1_loss "
    "huber_loss _is_all_true _is_any_true".split()
)
"""Operators that do not raise for some data, once their sizes fit, beside views and those on elements."""

_WAITED_FOR = frozenset("bincount embedding_bag _embedding_bag _embedding_bag_forward_only".split())
"""Operators with an index that the host looks at on a GPU, too."""

_INDEXED_DTYPES = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)
"""Dtypes that all operators with an index have kernels for; fakes do not tell of those that some lack."""


def exceptions_for_data(func: Any, args: Any, kwargs: Any, out: Any) -> Raised:
    """The exceptions that an operator which gave `out` on fakes may raise for some data; none for most."""
    if func.namespace not in ("aten", "prims"):
        return ANYTHING
    name = func._schema.name.split("::")[1].rstrip("_")
    if name in _DIVISIONS:
        raises = isinstance(out, torch.Tensor) and not (out.is_floating_point() or out.is_complex()) and not _is_on_gpu((out,))
        return OF_DIVISIONS if raises else ()
    if torch.Tag.pointwise in func.tags or name in _QUIET or name.startswith("_foreach_"):
        return ()
    returns = [each.alias_info for each in func._schema.returns]
    if returns and not any(info is None or info.is_write for info in returns):
        return ()
    return _of_indices(name, [*args, *kwargs.values()]) if _checks_indices(func) else OF_ATEN


def _checks_indices(func: Any) -> bool:
    return checks_indices(func)


def _of_indices(name: str, arguments: list[Any]) -> Raised:
    given = list(_tensors(arguments))
    places = _tensors(argument for argument in arguments if isinstance(argument, (list, tuple)))  # where masks are indices
    counts = name in _WAITED_FOR or any(
        place.dtype in (torch.bool, torch.uint8) for place in places
    )  # as many as there are values
    of_data = OF_INDICES if counts or not _is_on_gpu(given) else ()
    return of_data + (OF_DTYPES if any(tensor.dtype not in _INDEXED_DTYPES for tensor in given) else ())


def _is_on_gpu(tensors: Any) -> bool:
    return any(tensor.device.type == "cuda" for tensor in tensors)


def _tensors(arguments: Any) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors(argument)


def may_be(raised: Raised, kinds: list[type]) -> bool:
    """Whether `except kinds` may catch one of these; metaclasses are not asked."""
    return bool(raised) and (Exception in raised or any(kind in each.__mro__ for each in raised for kind in kinds))
