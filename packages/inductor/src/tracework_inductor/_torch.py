"""The only file here that touches private torch names."""

from typing import Any

import torch
from torch._ops import OpOverload as OpOverload


def schema_name(overload: OpOverload) -> str:
    """`aten::mm`."""
    return str(overload._schema.name)


def is_view(overload: OpOverload) -> bool:
    """Whether the one result shows the memory of an argument."""
    returns = overload._schema.returns
    return len(returns) == 1 and returns[0].alias_info is not None and not overload._schema.is_mutable


def overload_name(overload: OpOverload) -> str:
    """`default`."""
    return str(overload._overloadname)


def is_mutable(overload: OpOverload) -> bool:
    """Whether it writes to an argument."""
    return bool(overload._schema.is_mutable)


def arguments(node: Any) -> dict[str, Any]:
    """The arguments of a node that calls an overload, by the names of its schema, defaults too."""
    declared = node.target._schema.arguments
    named = dict(zip((a.name for a in declared), node.args, strict=False))
    return {a.name: a.default_value for a in declared} | named | dict(node.kwargs)


_KINDS = {
    "Tensor": "tensor",
    "Optional[Tensor]": "tensor?",
    "int": "int",
    "SymInt": "int",
    "bool": "int",
    "number": "float",
    "float": "float",
    "Optional[float]": "float?",
    "List[int]": "ints",
    "List[SymInt]": "ints",
    "Optional[List[int]]": "ints?",
    "List[bool]": "bools",
}


def declared_arguments(overload: OpOverload) -> list[tuple[str, str, Any]]:
    """Names, kinds as tracework_runtime.host.lines.Argument has them (empty for others), and defaults."""
    return [(a.name, _KINDS.get(str(a.real_type), ""), a.default_value) for a in overload._schema.arguments]


def declared_results(overload: OpOverload) -> list[str]:
    """The kinds of what it gives."""
    return [_KINDS.get(str(r.real_type), "") for r in overload._schema.returns]


def has_packed_linear(dtype: torch.dtype) -> bool:
    """Whether torch was built with the library that packs weights of linear layers, and that has products of this dtype on this processor."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_packed_convolutions() -> bool:
    """Whether torch was built with the library that packs weights of convolutions."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
