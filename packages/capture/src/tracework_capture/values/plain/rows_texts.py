"""str, bytes, repr, format, chr, ord and others that make or take texts."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable

from ...atoms import NUMPY_NUMBERS
from ...guards.classes import lookup_class
from ..number.deferred import DeferredValue, deferred_repr
from ..protocol.calls import Handler, calls
from ..protocol.constant import fold, force_plain
from ..protocol.kinds import AbstractInstance
from ..protocol.operators import operand_of
from ..protocol.value import Frame, Value
from .str_repr import is_unspecialised_number, shown
from .text import text_of_size
from .text_codecs import break_for_own_codec


def str_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 1 and not kwargs:
        return shown(frame, args[0], str)
    if set(kwargs) == {"object"} and not args:
        return shown(frame, kwargs["object"], str)
    return coded(str)(frame, args, kwargs)


def coded(cls: type) -> Handler:
    """str or bytes of an object, an encoding and an error handler."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        break_for_own_codec(frame, args[1:], kwargs)
        return fold(frame, cls, args, kwargs)

    return row


def repr_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return shown(frame, args[0], repr)


def format_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    spec = force_plain(frame, args[1]) if len(args) > 1 else ""
    args = [args[0].format_operand(frame), *args[1:]]
    found = args[0].own_format(frame, spec)
    if found is not None:
        return found
    if spec == "" and args[0].python_type() not in NUMPY_NUMBERS:  # of which str() is shorter
        return str_(frame, [args[0]], {})
    if is_unspecialised_number(args[0]):
        return text_of_size(frame, format, args[0], spec)
    if isinstance(args[0], DeferredValue):
        return deferred_repr(frame, args[0], format, spec)
    return fold(frame, format, [operand_of(args[0]), *args[1:]])


def folded(fn: Callable[..., object]) -> Handler:
    return lambda frame, args, kwargs: fold(frame, fn, args, kwargs)


def fspath(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """os.fspath(path)"""
    if args[0].python_type() in (str, bytes):
        return args[0]
    method, _ = lookup_class(args[0].python_type(), "__fspath__")
    if isinstance(args[0], AbstractInstance) and isinstance(method, types.FunctionType):
        return args[0].call_method(frame, "__fspath__", [], {})
    return frame.break_graph("builtin_unsupported", f"os.fspath of {args[0].describe()}")


PATHS_IN_C = [f for f in (os.path.normpath, getattr(os.path, "splitroot", None)) if isinstance(f, types.BuiltinFunctionType)]
"""Functions of texts of os.path that newer Pythons have in C."""

calls(
    {
        str: str_,
        bytes: coded(bytes),
        repr: repr_,
        format: format_,
        os.fspath: fspath,
        sys.intern: folded(sys.intern),
        **{function: folded(function) for function in PATHS_IN_C},
        chr: folded(chr),
        ord: folded(ord),
        hex: folded(hex),
        bin: folded(bin),
        oct: folded(oct),
        ascii: folded(ascii),
        str.maketrans: folded(str.maketrans),
        bytes.maketrans: folded(bytes.maketrans),
    }
)
