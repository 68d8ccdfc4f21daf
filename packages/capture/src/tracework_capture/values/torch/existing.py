"""Rows of WRAP: tensors and modules that are there; functions and methods, of Python, of C and of torch, whose calls become nodes, are
modelled or traced."""

from __future__ import annotations

import types
from typing import Any

import torch

from ... import _C
from ..._torch.modes import disabled_torch_function
from ..._torch.operators import CustomOpDef, OpOverload, OpOverloadPacket, program_of_triton_operator
from ...graph.wrapped import is_wrapper
from ...guards.functions import BREAKING
from ...marks import Mark, mark_of
from ...sources import Attr, Const, Source
from ..objects.controls import marked_value
from ..objects.function import FunctionValue, handler_of_function
from ..objects.row_value import CFunctionValue, RowValue, is_bound
from ..protocol.binding import FOREIGN_FUNCTIONS, BoundBuiltin
from ..protocol.calls import CALLS, function_name, row_of
from ..protocol.value import Frame, Value
from ..protocol.wraps import COMPILED_OF, guard_type, may_differ_per_call, row_of_other, wraps, wraps_derived, wraps_named
from .functions import CustomOperatorValue, TorchFunctionValue
from .graph_functions import is_graph_function
from .module import ModuleValue
from .opaque_tensor import foreign_tensor, why_foreign
from .subclass import existing_subclass_tensor, is_traced
from .tensor import existing_tensor
from .wrapper_tensor import existing_wrapper_tensor, is_jagged


@wraps(torch.Tensor, torch.nn.Parameter)
def wrap_tensor(frame: Frame, obj: Any, source: Source) -> Value:
    why = why_foreign(obj)
    return existing_tensor(frame, obj, source) if why is None else foreign_tensor(frame, obj, source, why)


@wraps_derived(torch.Tensor)
def wrap_tensor_subclass(frame: Frame, obj: Any, source: Source) -> Value:
    cls = type(obj)
    if cls.__torch_function__ is disabled_torch_function and (
        cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer))
    ):
        return wrap_tensor(frame, obj, source)
    if is_traced(cls):
        return existing_subclass_tensor(frame, obj, source)
    if is_wrapper(cls) and (is_jagged(obj) or why_foreign(obj) is None):
        return existing_wrapper_tensor(frame, obj, source)
    return foreign_tensor(frame, obj, source, ("tensor_subclass", f"a {cls.__name__}"))


@wraps_derived(torch.nn.Module)
def wrap_module(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return ModuleValue(type(obj), obj, source)


def note_mark(frame: Frame, mark: Mark) -> None:
    """What a capture makes of a marked function, no digest of its code says."""
    if mark.kind != BREAKING:
        frame.memory.only_now = f"a function is marked with {mark.kind}"


@wraps(types.FunctionType)
def wrap_function(frame: Frame, obj: Any, source: Source) -> Value:
    mark = mark_of(obj)
    if mark is not None and function_name(obj) not in CALLS:
        note_mark(frame, mark)
        return marked_value(frame, obj, source, mark)
    handler = handler_of_function(obj)
    if handler is not None:
        frame.guard("IDENTITY", source, obj)
        return RowValue(obj, handler, source)
    if is_graph_function(obj):
        frame.guard("IDENTITY", source, obj)
        return TorchFunctionValue(obj, source)
    if may_differ_per_call(source) and _C.runs_its_code(obj):
        frame.guard("CODE", source, obj.__code__)
        return FunctionValue(obj, source, by_identity=False)
    frame.guard("IDENTITY", source, obj)
    return FunctionValue(obj, source)


@wraps(
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    OpOverload,
    OpOverloadPacket,
)
@wraps_derived(OpOverload)
@wraps_named(*FOREIGN_FUNCTIONS)
def wrap_builtin(frame: Frame, obj: Any, source: Source) -> Value:
    """C functions, method descriptors, and callables of torch."""
    if is_bound(obj) and not isinstance(source, Const):
        return wrap_builtin_method(frame, obj, source)
    mark = mark_of(obj)
    if mark is not None:
        note_mark(frame, mark)
        return marked_value(frame, obj, source, mark)
    frame.guard("IDENTITY", source, obj)
    row = row_of(obj)
    if row is not None:
        return RowValue(obj, row.handler, source)
    if is_graph_function(obj):
        return triton_program(frame, obj) or TorchFunctionValue(obj, source)
    return CFunctionValue(obj, source)


def wrap_builtin_method(frame: Frame, obj: Any, source: Source) -> Value:
    """x.view, out.append: known by its name, on an owner that is known as any other object."""
    guard_type(frame, obj, source)
    frame.guard("CONSTANT", Attr(source, "__name__"), obj.__name__)
    method = BoundBuiltin(frame.wrap(obj.__self__, Attr(source, "__self__")), obj.__name__)
    method.source = source
    return method


@wraps_derived(CustomOpDef)
def wrap_custom_operator(frame: Frame, obj: Any, source: Source) -> Value:
    """What torch.library.custom_op gives: its calls are calls of the operator."""
    frame.guard("IDENTITY", source, obj)
    return triton_program(frame, obj) or CustomOperatorValue(obj, source)


def triton_program(frame: Frame, operator: Any) -> Value | None:
    """The function of a torch.library.triton_op, which is traced into; None for other operators and those with a backward of their own."""
    program = program_of_triton_operator(operator)
    return None if program is None else frame.wrap(program, Const(program, program.__qualname__))


@wraps(torch.jit.ScriptFunction)
def wrap_scripted(frame: Frame, obj: Any, source: Source) -> Value:
    """What torch.jit.script made of a function is traced as the function, where that means the same. What torch.jit.trace recorded, which
    has no name, is another program than the function that it came from."""
    known = vars(obj)
    function = known.get(COMPILED_OF) if "__name__" in known else None
    if type(function) is not types.FunctionType or not OTHERWISE_IN_SCRIPT.isdisjoint(function.__code__.co_names):
        return row_of_other(type(obj))(frame, obj, source)
    frame.guard("IDENTITY", source, obj)
    inner = FunctionValue(function, Const(function, function.__qualname__))
    return RowValue(obj, inner.call, source)


OTHERWISE_IN_SCRIPT = frozenset({"is_scripting", "print"})
"""Names of what answers otherwise in a scripted function, or writes past Python's files."""
