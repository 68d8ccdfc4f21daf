"""Runs rendered Triton kernels on CPU tensors through Triton's interpreter, and compiles them for a GPU target.

Must be imported before triton: the interpreter is chosen when triton is imported.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from tracework_inductor.ir.scalar_ops import IN_BITS

_COUNT = itertools.count()


def _allow_one_element_indices() -> None:
    """The interpreter takes int() of one-element arrays, which numpy 2.4 refuses."""
    import triton.runtime.interpreter as interpreter

    plain = interpreter._patch_lang_tensor

    def patched(tensor: Any, *rest: Any) -> Any:
        result = plain(tensor, *rest)
        scope = rest[0] if rest else None
        number = lambda self: int(self.handle.data.reshape(-1)[0])
        if scope is not None:
            scope.set_attr(tensor, "__index__", number)
        else:
            tensor.__index__ = number
        return result

    interpreter._patch_lang_tensor = patched


_allow_one_element_indices()


def _multiply_half_types() -> None:
    """The interpreter holds bfloat16 as the integers of its bits, and multiplies these."""
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    plain = interpreter.InterpreterBuilder.create_dot

    def wide(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        data = interpreter._convert_float(handle.data, tl.bfloat16, tl.float32, None).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, wide(a), wide(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


_multiply_half_types()


def _round_once() -> None:
    """The interpreter rounds the product of a fused multiplication and addition."""
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    plain = interpreter.InterpreterBuilder.create_fma

    def create_fma(self: Any, a: Any, b: Any, c: Any) -> Any:
        if a.dtype.scalar != tl.float32:
            return plain(self, a, b, c)
        with np.errstate(all="ignore"):
            found = a.data.astype(np.float64) * b.data + c.data
            return interpreter.TensorHandle(found.astype(np.float32), a.dtype.scalar)

    interpreter.InterpreterBuilder.create_fma = create_fma


_round_once()


class Libdevice:
    """numpy in place of CUDA's math library, which the interpreter does not have."""

    @staticmethod
    def _tensor(value: Any, data: np.ndarray) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        return tl.core.tensor(TensorHandle(data.astype(value.handle.data.dtype), value.handle.dtype), value.type)

    def __getattr__(self, name: str) -> Any:
        function = NUMPY[name]

        def call(*args: Any) -> Any:
            import triton.language as tl

            shaped = [a for a in args if isinstance(a, tl.core.tensor)]
            if len(shaped) < len(args):  # the others are numbers
                data = shaped[0].handle.data
                args = tuple(
                    a
                    if isinstance(a, tl.core.tensor)
                    else self._tensor(shaped[0], np.full_like(data, tl.core._unwrap_if_constexpr(a)))
                    for a in args
                )
                shaped = list(args)
            if len(shaped) == 2:
                a, b = tl.core._unwrap_if_constexpr(args[0]), tl.core._unwrap_if_constexpr(args[1])
                a, b = a + b * 0, b + a * 0  # broadcast as the compiler does
                with np.errstate(all="ignore"):
                    return (
                        self._tensor(
                            shaped[0] if len(args[0].shape) >= len(args[1].shape) else a,
                            function(args[0].handle.data, args[1].handle.data),
                        )
                        if args[0].shape == args[1].shape
                        else self._tensor(
                            a,
                            function(
                                np.broadcast_to(args[0].handle.data, a.handle.data.shape),
                                np.broadcast_to(args[1].handle.data, a.handle.data.shape),
                            ),
                        )
                    )
            with np.errstate(all="ignore"):
                return self._tensor(args[0], np.asarray(function(args[0].handle.data)))

        return call


def _by_torch(function: Any) -> Any:
    return lambda *arrays: function(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)).numpy()


NUMPY: dict[str, Any] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "pow": np.power,
    "fmod": np.fmod,
    "fast_dividef": lambda x, y: np.where((np.abs(y) > 2.0**126) & (np.abs(y) < np.inf), np.float32(0), np.divide(x, y)),
    "fast_log2f": np.log2,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "lgamma": _by_torch(torch.lgamma),
    "erfc": _by_torch(torch.erfc),
    **{n: getattr(np, n) for n in "expm1 log10 log1p sin cos tan sinh cosh tanh".split()},
    **{f"a{n}": getattr(np, f"arc{n}") for n in "sin cos tan sinh cosh tanh".split()},
}


def _tensors(arrays: Sequence[np.ndarray], like: Sequence[Any]) -> tuple[Any, ...]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    blocks = [tl.block_type(t.dtype, list(a.shape)) for a, t in zip(arrays, like, strict=True)]
    handles = [TensorHandle(a, t.handle.dtype) for a, t in zip(arrays, like, strict=True)]
    return tuple(map(tl.core.tensor, handles, blocks))


def _scanned(values: tuple[Any, ...], axis: int, combine: Any) -> list[np.ndarray]:
    """As a GPU does it, of whole tiles: each element with what lies 1, 2, 4, ... before it."""
    arrays, step = [v.handle.data for v in values], 1
    place = np.expand_dims(np.arange(arrays[0].shape[axis]), 1 - axis)
    while step < arrays[0].shape[axis]:
        earlier = _tensors([np.roll(a, step, axis) for a in arrays], values)
        joined = combine.fn(*earlier, *_tensors(arrays, values))
        joined = joined if isinstance(joined, tuple) else (joined,)
        arrays = [np.where(place < step, a, j.handle.data) for a, j in zip(arrays, joined, strict=True)]
        step *= 2
    return arrays


def _associative_scan(value: Any, axis: int, combine: Any) -> Any:
    """The interpreter walks a row in Python, element by element."""
    values = value if isinstance(value, tuple) else (value,)
    found = _tensors(_scanned(values, axis, combine), values)
    return found if isinstance(value, tuple) else found[0]


def _reduce(value: Any, axis: int, combine: Any) -> Any:
    """The interpreter walks a row in Python; maxima of plain tensors have a quicker way."""
    quick = {"_max": np.max, "_min": np.min}.get(getattr(combine, "__name__", ""))
    values = value if isinstance(value, tuple) else (value,)
    if quick is not None and not isinstance(value, tuple):
        return _tensors([quick(value.handle.data, axis=axis)], values)[0]
    found = _tensors([np.take(a, -1, axis) for a in _scanned(values, axis, combine)], values)
    return found if isinstance(value, tuple) else found[0]


def load_source(source: str, folder: Path) -> Any:
    """The source as a module, with the interpreter's math library."""
    name = f"interpreted_{next(_COUNT)}"
    path = folder / f"{name}.py"
    text = source.replace("from triton.language.extra import libdevice", "libdevice = None")
    path.write_text(text.replace("tl.reduce(", "_reduce(").replace("tl.associative_scan(", "_associative_scan("))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.libdevice = Libdevice()
    module._reduce, module._associative_scan = _reduce, _associative_scan
    return module


def interpret(rendered: Any, tensors: Sequence[torch.Tensor], sizes: Sequence[int], folder: Path, config: int = 0) -> None:
    """Launch a rendered kernel's stages on CPU tensors."""
    launch = dict(rendered.launch)
    module = load_source(rendered.source, folder)
    constants = launch["configs"][config]["constants"]
    names = {f"ks{n}": s for n, s in enumerate(sizes)}
    wide = launch["fits32"] is not None and not eval(launch["fits32"], {}, names)
    workspace = [torch.empty(eval(w["elements"], {}, names), dtype=getattr(torch, w["dtype"])) for w in launch["workspace"]]
    for entry, grid in zip(launch["entries"], launch["grids"], strict=True):
        blocks = eval(grid, {"math": math}, {**names, **constants})
        # A launch on a GPU takes addresses: what is there is what the signature says.
        given = [t.view(IN_BITS[t.dtype]) if t.dtype in IN_BITS else t for t in tensors]
        aligned = {"ALIGNED": all(t.data_ptr() % 16 == 0 for t in given)} if launch.get("by_alignment") else {}
        getattr(module, entry)[(blocks,)](*given, *sizes, *workspace, **constants, **aligned, WIDE=wide)


def host_call(
    host: str, kernels: Mapping[str, Any], folder: Path, look: Callable[..., None] = lambda *args: None
) -> Callable[..., Any]:
    """The host program's `call`, whose kernels the interpreter runs on CPU tensors. look: given each kernel, its tensors and its numbers first."""

    def launcher(kernel: Any) -> Callable[..., None]:
        def launch(*args: Any) -> None:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            numbers = args[len(tensors) :]
            look(kernel, tensors, numbers)
            interpret(kernel, tensors, numbers, folder)

        return launch

    namespace: dict[str, Any] = {"places": {}} | {name: launcher(kernel) for name, kernel in kernels.items()}
    exec(host, namespace)
    if "empty_cpu" in namespace:
        namespace["empty_cuda"] = namespace["empty_cpu"]
    call: Callable[..., Any] = namespace["call"]
    return call
