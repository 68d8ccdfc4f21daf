"""Results of ops without a row, from torch's own meta kernels; with symbolic sizes also from decompositions run on specs.

With symbolic sizes, what is found counts only if it agrees with the meta kernel at the example's sizes; the last resort is
to fix the sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .._torch import OpOverload
from ..aten_meta.dtypes import eager_error
from ..aten_meta.rows import SYMBOLIC
from ..decomp import DECOMPS
from ..errors import DataDependentError, FakeTensorError, GuardOnUnbackedError
from ..spec import TensorSpec, storage_extent
from ..symbols import active
from ..symbols.expr import Expr, Size
from ..symbols.ranges import simplify
from ..symbols.table import SymbolTable
from .rules import run_decomposition

if TYPE_CHECKING:
    from .mode import FakeMode

log = logging.getLogger("tracework.primops.fake")

Rule = Callable[..., Any]
OF_TORCH = frozenset({"aten", "prims"})
"""Namespaces of operators that torch.library.register_fake was not called for by a program."""


def meta_rule(func: OpOverload) -> Rule:
    """The rule that runs torch's meta kernel, or raises where the result depends on data."""
    if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:

        def data_dependent(*args: Any, **kwargs: Any) -> Any:
            found = _registered(func, args, kwargs, active.table())
            if found is None:
                raise DataDependentError(func)
            return found

        return data_dependent

    def meta_kernel(*args: Any, **kwargs: Any) -> Any:
        return run_meta_kernel(func, args, kwargs)

    return meta_kernel


def run_meta_kernel(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    """Specs of the results by running the op on meta tensors. Symbolic sizes that nothing can carry become fixed."""
    table = active.table()
    if not func._schema.returns:
        return None
    found = _registered(func, args, kwargs, table)
    if found is not None:
        return found
    if table is not None and _is_symbolic((*args, *kwargs.values())):
        hinted = _all_have_hints(args, kwargs, table)
        for way in (_decomposed, _on_fakes, _on_symbolic_meta) if hinted else (_on_fakes,):
            found = way(func, args, kwargs, table)
            if found is not None:
                return found
        log.info("%s: symbolic sizes become fixed, because only torch's meta kernel knows the result", func)
        args, kwargs = _numbers(args, table.fix), _numbers(kwargs, table.fix)
    return _run_static(func, args, kwargs)


def _all_have_hints(args: Any, kwargs: dict[str, Any], table: SymbolTable) -> bool:
    return all(table.has_hint(s) for s in _sizes_in((*args, *kwargs.values())))


def _on_symbolic_meta(func: OpOverload, args: Any, kwargs: dict[str, Any], table: SymbolTable) -> Any:
    """What torch's meta kernel says when it is given the symbols themselves, which not every kernel can take; else None."""
    return _checked(
        func, args, kwargs, table, lambda: _spec_of_meta(_call_meta(func, args, kwargs), _common_device(args, kwargs))
    )


def _on_fakes(func: OpOverload, args: Any, kwargs: dict[str, Any], table: SymbolTable) -> Any:
    """What torch's meta kernel says when it is written in Python and run on fakes, whose ops have rows; else None."""
    kernel = _torch.python_kernel(func, "Meta")
    if kernel is None:
        return None
    return _checked(func, args, kwargs, table, lambda: _run_on_fakes(kernel, args, kwargs, table))


def _registered(func: OpOverload, args: Any, kwargs: dict[str, Any], table: SymbolTable | None) -> Any:
    """What the function says that torch.library.register_fake was given for an op of a library; None where there is none, or it fails."""
    if table is None or func.namespace in OF_TORCH:
        return None
    kernel = _torch.fake_kernel(func)
    if kernel is None:
        return None
    try:
        return table.attempt(lambda: _run_on_fakes(kernel, args, kwargs, table))
    except (DataDependentError, GuardOnUnbackedError):
        raise
    except Exception as error:  # torch's own call of it gives the error
        log.debug("%s: the function of register_fake does not take fakes: %s", func, error)
        return None


def _run_on_fakes(kernel: Callable[..., Any], args: Any, kwargs: dict[str, Any], table: SymbolTable) -> Any:
    from .mode import FakeMode  # the fakes whose ops this kernel calls come back here for those without a row

    mode = FakeMode(table)
    with mode:
        result = kernel(*_fakes(mode, args), **_fakes(mode, kwargs))
    return _specs_of_fakes(result)


def _specs_of_fakes(a: Any) -> Any:
    if isinstance(a, (tuple, list)):  # named tuples too
        return (list if isinstance(a, list) else tuple)([_specs_of_fakes(x) for x in a])
    return a.spec if isinstance(a, torch.Tensor) else a


def _fakes(mode: FakeMode, a: Any) -> Any:
    if a.__class__ is TensorSpec:
        return mode.make(a)
    if isinstance(a, Expr):
        return mode.table.to_symint(a)
    if isinstance(a, dict):
        return {k: _fakes(mode, v) for k, v in a.items()}
    return a.__class__([_fakes(mode, x) for x in a]) if isinstance(a, (list, tuple)) else a


def _checked(func: OpOverload, args: Any, kwargs: dict[str, Any], table: SymbolTable, compute: Callable[[], Any]) -> Any:
    """compute()'s specs when they agree with the meta kernel at the example's sizes, where there are such; None when not, or when it fails."""
    hinted = _all_have_hints(args, kwargs, table)
    expected = _run_static(func, _numbers(args, table.hint), _numbers(kwargs, table.hint)) if hinted else None

    def run() -> Any:
        found = compute()
        if hinted and _numbers(found, table.hint) != expected:
            raise RuntimeError(f"symbols give {found}, numbers {expected}")
        return found

    try:
        return table.attempt(run)
    except Exception as error:  # kernels for plain numbers fail in many ways; what remains is to fix the sizes
        log.debug("%s: its meta kernel does not take symbols: %s", func, error)
        return None


def _run_static(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    device = _common_device(args, kwargs)
    try:
        result = _call_meta(func, args, kwargs)
    except NotImplementedError as error:
        raise FakeTensorError(f"{func}: there is no rule for its result and torch has no meta kernel for it ({error})") from error
    spec = _spec_of_meta(result, device)
    return TensorSpec(spec.dtype, spec.device, spec.sizes) if func in ROW_MAJOR else spec


ASKED_WITH = 1 << 28  # elements of a tensor


def refusal_of(func: OpOverload, args: Any, kwargs: dict[str, Any], otherwise: type[Exception]) -> Exception:
    """What eager raises for arguments that a rule refuses: of tensors on the CPU it is asked; else an error that names the arguments."""
    table = active.table()
    if table is None or _all_have_hints(args, kwargs, table):
        hint: Callable[[Any], int] = int if table is None else table.hint
        numbers, named = _numbers(args, hint), _numbers(kwargs, hint)
        specs = list(_specs_in((*numbers, *named.values())))
        fits = all(s.device.type == "cpu" and hint(storage_extent(s.sizes, s.strides)) < ASKED_WITH for s in specs)
        error = eager_error(func, numbers, named) if fits and torch.Tag.nondeterministic_seeded not in func.tags else None
        if error is not None:
            return error
    return otherwise(f"{func}: eager refuses {', '.join([*map(str, args), *(f'{k}={v}' for k, v in kwargs.items())])}")


ROW_MAJOR = frozenset({torch.ops.aten.im2col.default, torch.ops.aten.isin.Tensor_Tensor, torch.ops.aten.isin.Tensor_Scalar})
"""Ops of which eager's result is row-major and torch's meta kernel says otherwise, for images of one channel or by the operand's order."""


def _is_symbolic(values: Any) -> bool:
    for value in values:
        if value.__class__ is TensorSpec and value.is_symbolic or isinstance(value, Expr):
            return True
        if value.__class__ in (list, tuple) and _is_symbolic(value):
            return True
    return False


def _call_meta(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    meta_kwargs = {k: _to_meta(a) for k, a in kwargs.items()}
    if "device" in kwargs:
        meta_kwargs["device"] = torch.device("meta")
    return func(*map(_to_meta, args), **meta_kwargs)


def _to_meta(a: Any) -> Any:
    if a.__class__ is TensorSpec:
        return _meta_tensor(a)
    if a.__class__ in (list, tuple):
        return [_to_meta(x) for x in a]
    if isinstance(a, Expr):
        return active.carrier().to_symint(a)
    return torch.device("meta") if a.__class__ is torch.device else a


def _meta_tensor(spec: TensorSpec) -> torch.Tensor:
    if spec.is_symbolic:
        carry = active.carrier().to_symint
        return torch.empty_strided(
            [carry(s) for s in spec.sizes], [carry(s) for s in spec.strides], dtype=spec.dtype, device="meta"
        )
    base = torch.empty_strided(spec.sizes, spec.strides, dtype=spec.dtype, device="meta")
    if spec.offset == 0:
        return base
    extent = base.untyped_storage().nbytes() // base.element_size() + spec.offset
    return torch.empty([extent], dtype=spec.dtype, device="meta").as_strided(spec.sizes, spec.strides, spec.offset)


def _spec_of_meta(result: Any, device: torch.device) -> Any:
    if isinstance(result, torch.Tensor):
        where = device if result.device.type == "meta" else result.device
        sizes, strides = tuple(map(_size_of, result.size())), tuple(map(_size_of, result.stride()))
        return TensorSpec(result.dtype, where, sizes, strides, _size_of(result.storage_offset()))
    if isinstance(result, list):
        return [_spec_of_meta(r, device) for r in result]
    return tuple(_spec_of_meta(r, device) for r in result) if isinstance(result, tuple) else result


def _size_of(size: int | torch.SymInt) -> Size:
    if size.__class__ is int:
        return size
    table = active.carrier()
    return simplify(table.from_symint(size), table.ranges)


def _numbers(a: Any, number_of: Callable[[Any], int]) -> Any:
    """With every expression replaced by a number."""
    if isinstance(a, Expr):
        return number_of(a)
    if a.__class__ is TensorSpec:
        sizes, strides = tuple(map(number_of, a.sizes)), tuple(map(number_of, a.strides))
        return TensorSpec(a.dtype, a.device, sizes, strides, number_of(a.offset))
    if a.__class__ in (list, tuple):
        return a.__class__([_numbers(x, number_of) for x in a])
    if isinstance(a, dict):
        return {k: _numbers(v, number_of) for k, v in a.items()}
    return a


def _decomposed(func: OpOverload, args: Any, kwargs: dict[str, Any], table: SymbolTable) -> Any:
    """Symbolic specs from the decomposition, when they agree with torch's meta kernel on the example's sizes; else None."""
    rules = SYMBOLIC.get(func, ())
    if rules:
        return _agreeing(func, rules, args, kwargs, table)
    if func not in DECOMPS:
        return None
    decomposed = run_decomposition(func)
    expected = _run_static(func, _numbers(args, table.hint), _numbers(kwargs, table.hint))

    def run() -> Any:
        found = decomposed(*args, **kwargs)
        if _numbers(found, table.hint) != expected:
            raise ValueError(f"it gives {found}, torch's meta kernel {expected}")
        return found

    try:
        return table.attempt(run)
    except (NotImplementedError, KeyError, TypeError, AttributeError, ValueError) as error:
        log.debug("%s: its decomposition does not run on specs: %s", func, error)
        return None


def _agreeing(func: OpOverload, rules: Iterable[Rule], args: Any, kwargs: dict[str, Any], table: SymbolTable) -> Any:
    """What the first rule says that agrees with torch's meta kernel on the example's sizes; else None."""
    expected = _run_static(func, _numbers(args, table.hint), _numbers(kwargs, table.hint))
    for rule in rules:
        try:
            found = rule(*args, **kwargs)
        except NotImplementedError:
            continue
        if _numbers(found, table.hint) == expected:
            return found
    return None


def _sizes_in(values: Iterable[Any]) -> Iterator[Size]:
    for value in values:
        if value.__class__ is TensorSpec:
            yield from (*value.sizes, *value.strides, value.offset)
        elif value.__class__ in (list, tuple):
            yield from _sizes_in(value)
        elif isinstance(value, Expr):
            yield value


def _common_device(args: Any, kwargs: dict[str, Any]) -> torch.device:
    """The device of the results: an explicit one, else that of the first tensor that is not a 0-dim CPU number."""
    explicit = kwargs.get("device")
    if explicit is not None:
        return concrete_device(explicit)
    fallback = None
    for spec in _specs_in((*args, *kwargs.values())):
        if spec.sizes or spec.device.type != "cpu":
            return spec.device
        fallback = fallback or spec.device
    return fallback or torch.device("cpu")


def _specs_in(values: Iterable[Any]) -> Iterator[TensorSpec]:
    for value in values:
        if value.__class__ is TensorSpec:
            yield value
        elif value.__class__ in (list, tuple):
            yield from _specs_in(value)


def concrete_device(device: torch.device | str | int) -> torch.device:
    """With an index: `cuda` means the current device."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
