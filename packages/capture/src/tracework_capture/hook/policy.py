"""What happens to a frame when it is run: one that is captured may start a graph; one that is skipped runs plainly, while what it calls is
still seen."""

from __future__ import annotations

import builtins
import dis
import inspect
import os
import types
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils import rnn

from .. import _torch, array_functions
from .._torch.modules import module_call, trunc_normal_without_grad, wrapped_module_call
from ..bytecode.resume import original_code
from ..code_origin import TORCH_FOLDER
from ..errors import SITE, STDLIB
from ..own_packages import folders_of

_BUILTINS_NOW = builtins.__dict__
_BUILTINS = {
    name: _BUILTINS_NOW[name]
    for name in (
        "__import__ abs all any bool bytes callable chr dict divmod enumerate filter float frozenset getattr hasattr hash id int "
        "isinstance issubclass iter len list map max min next object ord property range repr reversed round set setattr slice sorted str sum "
        "super tuple type vars zip"
    ).split()
}


_COMPILED = (
    os.path.join(os.path.dirname(torch.__file__), "_dynamo") + os.sep,
    *(folder + os.sep for name in ("tracework_aotautograd", "tracework_runtime") for folder in folders_of(name)),
    "<tracework",
    "<frozen importlib",
)
"""Where code starts that runs what is compiled already, what this stack generates, and imports, whose code runs once."""

_TORCH_CAPTURED = tuple(
    TORCH_FOLDER + part.replace("/", os.sep)
    for part in ("nn/", "optim/", "distributed/algorithms/_checkpoint/checkpoint_wrapper.py")
)
_OF_PROCESSES = TORCH_FOLDER + "nn/parallel/".replace("/", os.sep)
"""Modules around modules that talk to other processes or threads: what they call is captured, and not what they do around it."""
_LIBRARIES = tuple(os.path.realpath(folder) + os.sep for name in ("numpy", "triton") for folder in folders_of(name))
"""Packages whose Python code does not compute with tensors, wherever they are installed."""
_COMPILER = (
    os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep,
    *(
        os.path.realpath(folder) + os.sep
        for stage in ("aotautograd", "primops", "inductor", "runtime")
        for folder in folders_of(f"tracework_{stage}")
    ),
)
"""Where the compiler's own stages lie: a program may have a path that is named after it."""
_AROUND = frozenset((os.path.join(os.path.dirname(torch.__file__), "_dynamo", "external_utils.py"), array_functions.__file__))
"""Files of what decorators put around functions of the program."""
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_PACKING = (
    "pack_padded_sequence pad_packed_sequence _packed_sequence_init _packed_sequence_init_args invert_permutation"
).split()
_DATA_DEPENDENT = frozenset(
    {
        trunc_normal_without_grad.__code__,
        *(function.__code__ for function in _torch.functions.present(rnn, _PACKING).values()),
    }
)
"""Code that asks the data of what it has just drawn, again and again, and code around an operator that asks for data."""
_LOOKS_AT_MODULES = frozenset(
    {
        *(getattr(torch.nn.Module, name).__code__ for name in ("__getattr__", "__setattr__", "__delattr__")),
        *(type(kind).__instancecheck__.__code__ for kind in (torch.nn.Parameter, torch.nn.Buffer)),
    }
)
"""Code that plain programs call all the time, for objects of all kinds, and that computes nothing."""
_LEFT_PLAIN = _DATA_DEPENDENT | _LOOKS_AT_MODULES
_FRAMES: dict[str, bool] = {}


_MODULE_CALLS = frozenset(
    {wrapped_module_call.__code__, module_call.__code__}  # all modules share them
)


def _code_of(called: Any) -> types.CodeType | None:
    return getattr(getattr(called, "__func__", called), "__code__", None)


class Outermost:
    """What the user wants compiled, told apart from what it calls. It is held weakly: the entries of its code hold this."""

    def __init__(self, function: Any) -> None:
        self.instance = weakref.ref(function) if isinstance(function, torch.nn.Module) else None
        called = function.forward if self.instance is not None else function
        code = _code_of(called) or (_code_of(type(called).__call__) if callable(called) else None)
        while code is not None and hasattr(called, "__wrapped__") and not frame_is_captured(code):
            called = called.__wrapped__  # the frame of torch's own decorator runs plainly
            code = _code_of(called)
        self.code = weakref.ref(code) if code is not None else None

    def is_frame(self, code: types.CodeType, names: Mapping[str, Any]) -> bool:
        """Whether this is a frame of it, or one that continues such a frame."""
        if is_module_call(code) and self.instance is not None:
            return names.get("self") is self.instance()
        return self.code is None or self.code() is original_code(code)


def is_module_call(code: types.CodeType) -> bool:
    """Whether this is what torch.nn.Module does around forward. Inside of broken code it runs plainly: forward is what is captured."""
    return original_code(code) in _MODULE_CALLS


def frame_is_captured(code: types.CodeType, globals_: Mapping[str, Any] | None = None) -> bool:
    """Whether a frame of this code may start a graph: user code and torch.nn, not the standard library or torch's insides.

    Code that was made of a text, as methods of dataclasses are, belongs to the file of its globals. A comprehension is run on an
    iterator that exists already; what it calls is still seen. The body of a module or class, and what exec runs, keeps its names in
    a dict that is not the frame's.
    """
    if code.co_name in _COMPREHENSIONS or not code.co_flags & inspect.CO_OPTIMIZED or original_code(code) in _LEFT_PLAIN:
        return False
    filename = code.co_filename
    if filename == "<string>" and globals_ is not None and isinstance(file := globals_.get("__file__"), str):
        filename = file
    known = _FRAMES.get(filename)
    if known is None:
        known = _FRAMES[filename] = _file_is_captured(filename)
    return known


def starts_watching(code: types.CodeType) -> bool:
    """Whether the code may ask Python to report the steps of frames that run already: it must be the program's own from its start."""
    names = code.co_names
    return "settrace" in names or "setprofile" in names or "monitoring" in names and "set_events" in names


_OF_ALL_OBJECTS = frozenset({"get_count", "get_objects", "get_referrers", "get_stats", "garbage", "callbacks"})
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")


def counts_objects(code: types.CodeType) -> bool:
    """Whether the code reads what Python's collector counts or finds: what capture makes while it traces would be among that."""
    names = code.co_names
    return "gc" in names and (not _OF_ALL_OBJECTS.isdisjoint(names) or "collect" in names and _reads_what_is_collected(code))


def _reads_what_is_collected(code: types.CodeType) -> bool:
    instructions = iter(dis.get_instructions(code))
    for instruction in instructions:
        if instruction.argval == "collect":
            called = next((i for i in instructions if i.opname in _CALLS), None)
            following = next(instructions, None)
            if called is None or following is None or following.opname != "POP_TOP":
                return True
    return False


def replaced_builtin() -> str | None:
    """A builtin that the compiler, a Python program itself, relies on and that the program has replaced by something of its own.

    Nothing is captured meanwhile: the compiler would call what the program put there, which may fail, or count its calls.
    """
    for name, builtin in _BUILTINS.items():
        if _BUILTINS_NOW.get(name) is not builtin:
            return name
    return None


def runs_what_is_compiled(code: types.CodeType) -> bool:
    """Whether the frame is torch.compile's own, an import, or a backward of this stack, which the engine calls below any program: it
    and all below it are left alone. So is what a checkpoint runs, which the backward runs again where nothing is compiled: both times
    plainly, so that the same is saved.
    """
    if _torch.autograd.call_of_checkpointed is not None and code is _torch.autograd.call_of_checkpointed.__code__:
        return True
    return code.co_filename.startswith(_COMPILED) and code.co_filename not in _AROUND


def _file_is_captured(filename: str) -> bool:
    if filename.startswith(("<frozen", "<__array_function__")):
        return False
    if filename in _AROUND:
        return True
    path = os.path.realpath(filename)
    if path.startswith(TORCH_FOLDER):
        return path.startswith(_TORCH_CAPTURED) and not path.startswith(_OF_PROCESSES)
    if path.startswith(_LIBRARIES):
        return False
    if path.startswith(_COMPILER):
        return False
    return path.startswith(SITE) or not path.startswith(STDLIB)
