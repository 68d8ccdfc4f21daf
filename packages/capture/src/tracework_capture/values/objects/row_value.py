"""Callables that a row of a table stands for, and functions of C that have none."""

from __future__ import annotations

import types

from ...sources import Attr, Const
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import function_name
from ..protocol.constant import ConstantValue, fold
from ..protocol.known_function import KnownFunction
from ..protocol.pure import is_pure
from ..torch.overrides import dispatch_function, is_overridable, is_overridden
from .opaque_call import opaque_call

NO_OWNERS = (types.ModuleType, type, type(None))
"""What a C function may be bound to without being a method: others are made anew by each look-up, and wait on the stack for their
arguments, over a break."""


BOUND_TYPES = (types.BuiltinMethodType, types.MethodWrapperType)


def is_bound(obj):
    """Whether it is a method of its owner; functions that pybind11 makes are bound to a record that has no such attribute."""
    if not isinstance(obj, BOUND_TYPES) or isinstance(obj.__self__, NO_OWNERS):
        return False
    return hasattr(type(obj.__self__), obj.__name__)


FOREIGN_FUNCTIONS = {"cython_function_or_method", "fused_cython_function", "nb_func"}
"""Types of functions that Cython and nanobind make."""


class RowValue(KnownFunction):
    """A function that a table answers for."""

    def __init__(self, fn, row, source=None):
        super().__init__(fn, source)
        self.row = row

    def describe(self):
        return getattr(self.fn, "__qualname__", repr(self.fn))

    def getattr(self, frame, name):
        from ..protocol.binding import C_METHODS

        if name == "__call__":
            return BoundBuiltin(self, name)
        try:
            found = getattr(self.fn, name)
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)
        if isinstance(found, C_METHODS):
            return frame.break_graph("attribute_unknown", f"{self.describe()}.{name}")
        if getattr(self.fn, name) is found:
            return frame.wrap(found, Attr(Const(self.fn), name))
        from ..plain.results import wrap_constant

        return wrap_constant(frame, found)

    def compare(self, frame, op, other):
        """Bound ones are equal where they are the same function of the same object."""
        if isinstance(self.fn, BOUND_TYPES) and isinstance(other, RowValue) and op in ("==", "!="):
            return ConstantValue((self.fn == other.fn) == (op == "=="))
        return None  # others are, as any object, equal to themselves alone

    def call_method(self, frame, name, args, kwargs):
        return self.call(frame, args, kwargs) if name == "__call__" else super().call_method(frame, name, args, kwargs)

    def call(self, frame, args, kwargs):
        if is_overridden(frame, args, kwargs) and is_overridable(frame, self.fn):
            return dispatch_function(frame, self, args, kwargs)
        return self.row(frame, args, kwargs)


class CFunctionValue(RowValue):
    """A C function without a row: methods act on their first argument, pure ones are folded, the rest breaks."""

    def __init__(self, fn, source=None):
        super().__init__(fn, None, source)

    def call(self, frame, args, kwargs):
        from ..protocol.binding import call_c_method

        fn = self.fn
        if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType) and args:
            return call_c_method(frame, fn, args[0], fn.__name__, list(args[1:]), kwargs)
        if isinstance(getattr(fn, "__self__", None), type) or is_bound(fn):
            owner = fn.__self__
            return frame.wrap(owner, Const(owner)).call_method(frame, fn.__name__, list(args), kwargs)
        if is_pure(fn):
            return fold(frame, fn, args, kwargs)
        found = opaque_call(frame, fn, args, kwargs)
        return found if found is not None else frame.break_graph("call_unknown", function_name(fn))
