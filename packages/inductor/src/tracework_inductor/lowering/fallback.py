"""Ops handed to the eager kernel, with the reason."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from tracework_primops import checks_indices, is_collective, is_wait

from .. import _torch
from ..ir.buffer import IN_PARTS
from ..ir.scalar_ops import IN_BITS
from ..options import InductorOptions
from ..schedule.graph import alias_root
from .not_lowered import DRAWS, NOT_LOWERED, SIZES
from .operands import as_in_eager, is_overload, operands
from .registry import LOWERINGS, VIEWS
from .value import TensorValue, settled

SUPPORTED_DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""What loops can compute with; anything else calls the eager kernel."""


def reason(name: str, target: Any, args: Any, spec: Any, options: InductorOptions) -> str | None:
    """Why this call goes to the eager kernel, or None."""
    if name in options.fallback_ops:
        return "the option fallback_ops lists it"
    if not hasattr(target, "family"):
        return _of_overload(target)
    if name not in LOWERINGS:
        return NOT_LOWERED.get(name, "it is a prim that the program brings along")
    if options.keeps_order and (target.family in ORDERED_FAMILIES and name not in ANY_ORDER or SCATTERS.get(name) == "adds"):
        return f"the option numerics is {options.numerics!r}"
    if options.deterministic and name in SCATTERS and any(s.device.type != "cpu" for s in _specs(spec)):
        return "algorithms are to be deterministic, and a GPU writes to computed positions in any order"
    in_memory = name in OF_PARTS or target.family == "view" and name in VIEWS
    if target.family in LIBRARY_FAMILIES or in_memory and _complex_dtypes(args, spec) <= IN_PARTS.keys():
        return None
    moves = IN_BITS.keys() if name in MOVES and not (name == "index_put" and True in args[3:4]) else frozenset()
    dtype = next((d for d in _dtypes(args, spec) if d not in SUPPORTED_DTYPES and d not in moves), None)
    return f"loops do not compute with {dtype}" if dtype is not None else None


def _of_overload(target: Any) -> str:
    """Why a call that no prim stands for is the library's."""
    tags = getattr(target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return DRAWS
    if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
        return SIZES
    namespace, _, name = _torch.schema_name(target).partition("::") if isinstance(target, _torch.OpOverload) else ("", "", "")
    if namespace != "aten":
        return "it is an operator that the program brings along"
    return next(
        (why for start, why in LIBRARIES.items() if name.startswith(start)),
        "it is no prim, and no decomposition makes prims of it",
    )


LIBRARIES: Mapping[str, str] = {
    "_fft_": "a Fourier transform is the work of a library of its own, in fewer steps than sums of products",
    **dict.fromkeys(
        ("linalg_", "_linalg_", "cholesky", "_cholesky", "lu_", "ormqr", "geqrf", "triangular_solve"),
        "it is a factorisation, a solver or a chain of products, where each step depends on the one before: LAPACK's work",
    ),
    **dict.fromkeys(
        ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_fused_sdp"),
        "it is the library's kernel for attention, which holds no matrix of scores",
    ),
}
"""How names of ATen's operators begin -> why those without a prim are the library's."""

ORDERED_FAMILIES = frozenset({"reduction", "scan", "matmul", "conv", "window"})
"""Ops that add or multiply elements up."""
ANY_ORDER = frozenset("amax amin any all argmax argmin cummax cummin count_nonzero xor_sum max_pool max_pool_backward".split())
"""Those of them whose result does not depend on the order."""
SCATTERS: Mapping[str, str] = {
    **dict.fromkeys(("index_put", "scatter_add", "scatter_reduce", "index_add", "put"), "adds"),
    **dict.fromkeys(("scatter", "index_copy"), "replaces"),
}
"""Writes to computed positions -> what becomes of values that meet at one."""

MOVES = frozenset(
    "convert bitcast where full empty empty_strided scalar_tensor clone contiguous copy_into cat pad index_select index index_put roll"
    " slice_scatter select_scatter diagonal_scatter expand permute reshape slice select squeeze unsqueeze diagonal flip unfold"
    " as_strided".split()
)
"""Ops that only move elements, which loops may hold as bits, and that eager has for dtypes in IN_BITS."""

OF_PARTS = frozenset({"view_as_real", "view_as_complex"})
"""Where loops read complex memory, and fill it."""

LIBRARY_FAMILIES = frozenset({"matmul", "conv", "rng"})


def _specs(spec: Any) -> list[Any]:
    return [part for part in (spec if isinstance(spec, (tuple, list)) else [spec]) if hasattr(part, "device")]


def _complex_dtypes(args: Any, spec: Any) -> set[torch.dtype]:
    return {d for d in _dtypes(args, spec) if d.is_complex}


def _dtypes(args: Any, spec: Any) -> list[torch.dtype]:
    found: list[torch.dtype] = []

    def visit(arg: Any) -> None:
        if isinstance(arg, TensorValue) or hasattr(arg, "strides"):
            found.append(arg.dtype)
        elif isinstance(arg, (tuple, list)):
            for a in arg:
                visit(a)

    visit(list(args))
    visit(spec)
    return found


# Prims that are no views, and whose eager rule may give the memory of its argument.
SHARING = frozenset("bitcast real imag conj convert device_put".split())


def call(low: Any, target: Any, args: Any, kwargs: Any, why: str) -> Any:
    """A node that runs the prim's eager rule, or the named ATen overload."""
    family = getattr(target, "family", None)
    if getattr(target, "name", "") == "copy_into":
        return _write_input(low, target, args, why)
    if family is not None:
        text = f"prims.{target.name}.apart" if family == "view" or target.name in SHARING else f"prims.{target.name}"
        if family == "rng" and low.node.target is target:
            args, kwargs = as_in_eager(low, (tuple(args), dict(kwargs)), (low.node.args, low.node.kwargs))
        return low.extern(text, args, kwargs, reason=why, ordered=family == "rng" or _only_checks(low, target))
    if low.node is not None and low.node.target is target and is_overload(low.node):
        args, kwargs = operands(low, low.node, args, kwargs)
    text = overload_text(target)
    if is_wait(target):
        return _wait(low, text, args, why)
    if is_collective(target):
        return _collective(low, text, args, kwargs, why)
    if _torch.is_view(target):  # values share no memory here, and a write or a reuse of what is viewed would show
        text = f"(lambda *args, **kwargs: {text}(*args, **kwargs).clone())"
    return low.extern(text, args, kwargs, reason=why, ordered=_has_effect(target) or _only_checks(low, target))


def _only_checks(low: Any, target: Any) -> bool:
    """Whether nobody reads the results of a call that may refuse an index."""
    return low.node is not None and low.node.target is target and not low.node.users and checks_indices(low.node)


def _write_input(low: Any, target: Any, args: Any, why: str) -> Any:
    """The eager copy into a graph input, after everything that reads its old value."""
    destination = settled(args[0])
    low.settle_readers(destination.buffer)
    source = low.realize(args[1])  # before the write, as what it reads may be the input
    new = low.extern(f"prims.{target.name}", (destination, source), {}, reason=why, mutates=destination.buffer)
    low.mutated[new.buffer], low.newest[destination.buffer] = destination.buffer, new.buffer
    return new


def _collective(low: Any, text: str, args: Any, kwargs: Any, why: str) -> Any:
    """A call that all processes make at the same place of their order."""
    made = low.extern(text, args, kwargs, reason=why, ordered=True)
    node = low.nodes[-1]
    low.in_flight.update(dict.fromkeys(filter(None, node.outputs), node.reads & low.buffers.keys()))
    return made


def _wait(low: Any, text: str, args: Any, why: str) -> Any:
    """The result of a collective, which is written by then, and what that read may be written to."""
    result = low.realize(args[0])
    low.settle_readers(result.buffer)
    until_then = low.in_flight.get(alias_root(low.buffers, result.buffer), ())
    there = low.extern(text, (result,), reason=why, ordered=True, mutates=result.buffer, until_then=until_then)
    return replace(result, buffer=there.buffer)


def overload_text(target: Any) -> str:
    """`torch.ops.aten.mm.default` for an overload."""
    if not isinstance(target, _torch.OpOverload):
        raise TypeError(f"{target!r} is neither a prim nor an overload")
    namespace, _, name = _torch.schema_name(target).partition("::")
    return f"torch.ops.{namespace}.{name}.{_torch.overload_name(target)}"


def _has_effect(target: Any) -> bool:
    """Whether it matters though nobody reads it: it draws random numbers, or only checks data and returns nothing."""
    schema = getattr(target, "_schema", None)
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) or schema is not None and not schema.returns
