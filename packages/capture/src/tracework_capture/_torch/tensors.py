"""What tensors are: their classes, those of nested tensors, what lies in whose memory, and how the native side reads them."""

import functools
from typing import Any

import torch
from torch.nested._internal import nested_tensor as _nested

from .. import _C

DLPACK_DTYPES: dict[Any, tuple[int, int]] = {
    getattr(torch, name): row
    for name, row in {
        "int8": (0, 8),
        "int16": (0, 16),
        "int32": (0, 32),
        "int64": (0, 64),
        "uint8": (1, 8),
        "uint16": (1, 16),
        "uint32": (1, 32),
        "uint64": (1, 64),
        "float16": (2, 16),
        "float32": (2, 32),
        "float64": (2, 64),
        "bfloat16": (4, 16),
        "bool": (6, 8),
    }.items()
    if hasattr(torch, name)
}
"""dtype -> DLPack's (code, bits); what is missing is checked through attributes, complex tensors because of their conjugate bit."""

DLPACK_DEVICES = {"cpu": 1, "cuda": 2}
"""Device type -> DLPack's number; what is missing is checked through attributes."""
make_subclass = torch.Tensor._make_subclass
TensorBase = torch._C.TensorBase
"""The class that C defines, of which torch.Tensor is a class."""
MODULE_OF_TENSOR = torch._tensor.__name__
"""Where the Python methods of torch.Tensor say that they are from."""


TENSORS_HAVE_NAMES = hasattr(torch.Tensor, "names")
"""Whether tensors have the names of their dims, which went with torch 2.13."""


NESTED: type = _nested.NestedTensor
"""The class of nested tensors of torch.jagged layout: values one after the other, and where each row of them begins."""


def jagged_values(tensor: Any) -> torch.Tensor:
    """The values of such a tensor, as a view of it."""
    return torch._nested_get_values(tensor)


def jagged_of(parts: dict[str, Any], ragged: int) -> torch.Tensor:
    """Such a tensor of its parts, as a view of the values, whose history it continues."""
    lengths, shortest, longest = (parts.get(name) for name in ("_lengths", "_min_seqlen_tensor", "_max_seqlen_tensor"))
    return torch._nested_view_from_jagged(
        parts["_values"], parts["_offsets"], jagged_example(), lengths, ragged, shortest, longest
    )


def jagged_padded(tensor: Any) -> torch.Tensor:
    """Its rows, as long as the longest one."""
    return torch.nested.to_padded_tensor(tensor, 0.0)


def jagged_of_padded(padded: torch.Tensor, like: Any) -> torch.Tensor:
    """(batch, rows, ...), of which the rows of another nested tensor are taken."""
    known = like._maybe_min_seqlen, like._maybe_max_seqlen
    made: torch.Tensor = _nested.nested_from_padded(padded, like.offsets(), 1, *known, like._values.shape[like._ragged_idx - 1])
    return made


def jagged_example() -> torch.Tensor:
    """The one that torch has operators find their class by. It is made at its first use, which no trace is to see."""
    return _nested._nt_view_dummy()


@functools.cache
def jagged_functions() -> frozenset[Any]:
    """Functions of torch that the __torch_function__ of nested tensors computes itself."""
    own = "flatten", "rms_norm"
    found = {getattr(place, name) for place in (torch, torch.Tensor, torch.nn.functional) for name in own if hasattr(place, name)}
    return frozenset({torch.nn.functional.scaled_dot_product_attention, *found})


def is_nested_size(number: Any) -> bool:
    """Whether a size is that of rows which differ in length."""
    return isinstance(number, torch.SymInt) and number.node.is_nested_int()


def dispatch_keys(tensor: Any) -> int:
    """The tensor's own dispatch keys as one number."""
    return torch._C._dispatch_keys(tensor).raw_repr()


def has_internal_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements are surely one place in memory."""
    return torch._debug_has_internal_overlap(tensor) == 1


def set_version(tensor: torch.Tensor, version: int) -> None:
    """How often it counts as written to."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _connect() -> None:
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    with torch.inference_mode(False):
        plain = torch.empty(1, device="cpu")
        parameter = torch.nn.Parameter(torch.empty(1, device="cpu"))
        _C.set_tensor_api(capsule, torch._C.TensorBase.__dict__["requires_grad"], parameter, plain)


def _learn_layout() -> bool:
    """Shows the native side tensors of known sizes, strides and storage offset, which differ in one thing each."""
    sizes, strides, offset = (3, 5, 7, 11, 13), (2, 4, 6, 8, 10), 17  # as in tensor_snapshot.c
    with torch.inference_mode(False):
        probe = torch.empty(1024, device="cpu", dtype=torch.float32).as_strided(sizes, strides, offset)
        other = torch.empty(1024, device="cpu", dtype=torch.int32).as_strided(sizes, strides, offset)
        meta = torch.empty(1024, device="meta", dtype=torch.float32).as_strided(sizes, strides, offset)
        return _C.set_tensor_layout(probe, torch._neg_view(probe), other, meta)


_connect()
SNAPSHOTS = _learn_layout()
"""Whether unchanged tensors are recognised by their fields."""
