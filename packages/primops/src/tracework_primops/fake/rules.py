"""What an overload gives, over specs: its row in ATEN_META, else its decomposition run on specs.

Beside the decomposition stand what it does not say: REFUSALS, which raise where eager does, and LAYOUTS, for results that eager lays out
otherwise than the prims do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from .. import decomp
from ..aten_meta.rows import ATEN_META, BY_META_KERNEL, LAYOUTS, REFUSALS, fresh
from ..elementwise import same_layout
from ..op import GraphBuilder, Op, PrimValue, prims
from ..spec import TensorSpec
from .lists import rule_of_list

log = logging.getLogger("tracework.primops.fake")

Rule = Callable[..., Any]
NOT_OF_EAGER = (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError)
"""What decompositions raise for arguments that they were not written for: torch's meta kernel knows what eager does with them."""


def rule_of(func: Any) -> Rule | None:
    """The rule over specs of an overload; None where torch's meta kernel is asked."""
    row = ATEN_META.get(func)
    if row is not None:
        return row
    if func in decomp.DECOMPS and func._schema.name.startswith("aten::_foreach_") and not func._schema.is_mutable:
        return rule_of_list(func, rule_of)
    if func not in decomp.DECOMPS or not _is_asked(func):
        return None
    view = _view_of(func)
    if view is not None:
        return _copying(view)
    decomposed, refuses, layout = run_decomposition(func), REFUSALS.get(func), LAYOUTS.get(func)

    def rule(*args: Any, **kwargs: Any) -> Any:
        if refuses is not None and refuses(*args, **kwargs) is NotImplemented:
            return NotImplemented
        try:
            found = decomposed(*args, **kwargs)
        except NOT_OF_EAGER as error:
            log.debug("%s: its decomposition does not run on specs: %s", func, error)
            return NotImplemented
        return found if layout is None else _laid_out(found, layout, args, kwargs)

    return rule


def _is_asked(func: Any) -> bool:
    """Whether fakes ask the decomposition of an overload."""
    if func.namespace != "aten" or func._schema.is_mutable:
        return False
    name = func._schema.name.removeprefix("aten::")
    return not (name in BY_META_KERNEL or f"{name}.{func._overloadname}" in BY_META_KERNEL)


def _view_of(func: Any) -> Rule | None:
    """The rule of the view that this overload is a copy of: `permute_copy` of `permute`."""
    name = func._schema.name.removeprefix("aten::")
    if not name.endswith("_copy") or name.startswith("_"):
        return None
    view = getattr(getattr(torch.ops.aten, name.removesuffix("_copy"), None), func._overloadname or "default", None)
    is_view = view is not None and any(r.alias_info is not None for r in view._schema.returns)
    return rule_of(view) if is_view else None


def _copying(view: Rule) -> Rule:
    """The view's sizes in new memory."""

    def copied(*args: Any, **kwargs: Any) -> Any:
        shown = view(*args, **kwargs)
        if shown.__class__ is TensorSpec:
            return fresh(shown, shown.sizes)
        return [fresh(spec, spec.sizes) for spec in shown] if shown.__class__ is list else shown

    return copied


class Shapes(GraphBuilder):
    """Runs a decomposition for what it says of sizes, strides and dtypes."""

    def __init__(self) -> None:
        super().__init__(None)
        self.has_gaps = False
        """Whether a spec may have strides that new memory does not have."""

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Kernels of a GPU read operands in their own dtype: there the strides of what is converted count as they are."""
        if op is prims.convert and args[0].device.type != "cpu":
            self.has_gaps = True
            return PrimValue(args[0].spec.replace(dtype=args[1]), None)
        return super().call(op, args)


def run_decomposition(func: Any) -> Rule:
    """The rule over specs that the decomposition of an overload is."""
    decomposition = decomp.DECOMPS[func]
    returns = func._schema.returns
    is_list = len(returns) == 1 and isinstance(returns[0].type, torch.ListType)

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        shapes = Shapes()
        with shapes:
            found = decomposition(*values_of(args), **(values_of(kwargs) if kwargs else kwargs))
        found = specs_of_values(found, shapes.has_gaps)
        return list(found) if is_list and found.__class__ is tuple else found

    return decomposed


def _laid_out(found: Any, layout: Rule, args: Any, kwargs: Any) -> Any:
    if found.__class__ is TensorSpec:
        return layout(found, *args, **kwargs)
    return found.__class__([_laid_out(f, layout, args, kwargs) for f in found]) if found.__class__ in (tuple, list) else found


def values_of(a: Any) -> Any:
    """Arguments of an op as its decomposition gets them."""
    if a.__class__ is TensorSpec:
        return PrimValue(a, None)
    if a.__class__ in (list, tuple):
        return tuple([values_of(x) for x in a])
    return {k: values_of(v) for k, v in a.items()} if isinstance(a, dict) else a


def specs_of_values(a: Any, has_gaps: bool) -> Any:
    """The specs of what a decomposition gave, those with gaps as in memory of their own."""
    if a.__class__ is PrimValue:
        spec = a.spec
        return TensorSpec(spec.dtype, spec.device, spec.sizes, same_layout(spec), 0) if has_gaps else spec
    return a.__class__([specs_of_values(x, has_gaps) for x in a]) if a.__class__ in (list, tuple) else a
