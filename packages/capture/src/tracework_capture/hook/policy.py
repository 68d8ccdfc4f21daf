"""TRACE_POLICY: what happens to a Python function when it is called in a traced program, and to a frame when it is run.

INLINE runs its code on Values; BREAK leaves it to plain Python (a graph break in the caller), PLAIN its caller, too. A frame that is CAPTUREd may
start a graph; one that is SKIPped runs plainly, while what it calls is still seen.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import inspect
import os
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import rnn

from .. import _C, _torch, array_functions
from ..bytecode.resume import original_code
from ..errors import SITE, STDLIB, is_installed_file

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BREAK",
    "INLINE",
    "PLAIN",
    "Outermost",
    "TRACE_POLICY",
    "call_policy",
    "counts_objects",
    "frame_is_captured",
    "runs_what_is_compiled",
    "starts_watching",
    "is_disabled",
    "is_module_call",
    "is_of_torch",
    "replaced_builtin",
]

INLINE, BREAK, PLAIN = "inline", "break", "plain"
_BUILTINS_NOW = builtins.__dict__
_BUILTINS = {
    name: _BUILTINS_NOW[name]
    for name in (
        "__import__ abs all any bool bytes callable chr dict divmod enumerate filter float frozenset getattr hasattr hash id int "
        "isinstance issubclass iter len list map max min next object ord property range repr reversed round set setattr slice sorted str sum "
        "super tuple type vars zip"
    ).split()
}

OF_KINDS = (
    "isabstract isasyncgenfunction isbuiltin isclass iscode iscoroutinefunction isdatadescriptor isfunction isgenerator"
    " isgeneratorfunction isgetsetdescriptor ismemberdescriptor ismethod ismethoddescriptor ismethodwrapper ismodule isroutine getmro"
    " _has_code_flag _has_coroutine_mark _signature_is_functionlike"
).split()
"""Functions of the module inspect that look at an object's type and flags alone."""
OF_ARGUMENTS = "Signature.bind Signature.bind_partial Signature._bind BoundArguments".split()
"""Methods of it that put arguments to the names of parameters."""
OF_OPTIMIZED_MODULES = ("__delattr__", "__getattr__", "__len__", "__setattr__", "training")
"""Methods of what torch.compile makes of a module that ask the module, or change it."""
OF_WARNINGS = "catch_warnings filterwarnings simplefilter resetwarnings _add_filter WarningMessage".split()
"""What the module warnings has that changes its filters, and the records that it gives to whoever takes warnings up."""
NUMPY_CODE = (
    "_core._ufunc_config _core.fromnumeric _core.numeric _core.shape_base fft._helper lib._array_utils_impl lib._arraypad_impl"
    " lib._arraysetops_impl lib._function_base_impl lib._index_tricks_impl lib._nanfunctions_impl lib._polynomial_impl"
    " lib._shape_base_impl lib._stride_tricks_impl lib._twodim_base_impl lib._type_check_impl lib._ufunclike_impl linalg._linalg"
).split()
"""Modules of NumPy whose functions only compute, from others."""

TRACE_POLICY: tuple[tuple[str, str, str], ...] = (
    # module, its start, or a function in it; decision for calls, reason
    ("tracework.compiled_module", INLINE, "a compiled module inside of a compiled one"),
    ("tracework_capture.regions", INLINE, "a function in a region"),
    ("tracework_capture.array_functions", INLINE, "a function of arrays as one of tensors"),
    ("tracework_capture.attention", INLINE, "flex_attention in calls of torch"),
    ("tracework_capture.stand_ins", INLINE, "traced for functions of torch"),
    ("tracework_capture", BREAK, "the compiler itself"),
    ("tracework_aotautograd", BREAK, "the compiler itself"),
    ("tracework_primops", BREAK, "the compiler itself"),
    ("tracework_inductor", BREAK, "the compiler itself"),
    ("tracework_runtime", BREAK, "the compiler itself"),
    ("tracework", BREAK, "the compiler itself"),
    ("torch._dynamo._trace_wrapped_higher_order_op", INLINE, "the mode in which masks index tensors"),
    ("torch._dynamo.external_utils", INLINE, "what torch.compile's decorators put around a function"),
    *((f"torch._dynamo.eval_frame.OptimizedModule.{name}", INLINE, "a module as it was") for name in OF_OPTIMIZED_MODULES),
    ("torch._dynamo.comptime", INLINE, "does nothing, as outside of torch.compile"),
    ("torch._dynamo", BREAK, "another compiler"),
    ("torch._inductor", BREAK, "another compiler"),
    ("torch.fx._pytree", INLINE, "the arguments of an exported program"),
    ("torch.fx", BREAK, "graph tooling"),
    ("torch.autograd.grad_mode", INLINE, "managers of grad mode"),
    *((f"torch.autograd.function.Function.{name}", INLINE, "warns of instances") for name in ("__init__", "__call__")),
    ("torch.autograd", BREAK, "the autograd engine's Python side"),
    ("torch.nn.init._no_grad_trunc_normal_", BREAK, "draws again until all numbers fit"),
    ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", INLINE, "modules around modules"),
    ("torch.distributed", BREAK, "process groups"),
    ("torch.utils.data", BREAK, "data loading"),
    ("torch.serialization", BREAK, "files"),
    ("torch._subclasses", BREAK, "fake tensors of another compiler"),
    ("importlib", BREAK, "imports"),
    ("logging", BREAK, "writes to handlers"),
    *((f"warnings.{name}", INLINE, "says what is done with warnings") for name in OF_WARNINGS),
    ("warnings", BREAK, "keeps a registry per module"),
    ("threading", BREAK, "threads"),
    ("unittest", BREAK, "test machinery"),
    ("traceback", BREAK, "reads frames"),
    ("linecache", BREAK, "reads files"),
    *((f"inspect.{name}", INLINE, "asks what an object is") for name in OF_KINDS),
    ("inspect.unwrap", INLINE, "follows what wrappers keep"),
    *((f"inspect.{name}", INLINE, "arguments by their names") for name in OF_ARGUMENTS),
    *((f"inspect.{name}", INLINE, "asks for each attribute") for name in ("getmembers", "_getmembers")),
    ("inspect", BREAK, "reads frames and sources"),
    ("pdb", PLAIN, "a debugger"),
    ("bdb", PLAIN, "a debugger"),
    ("random", BREAK, "Python's random state"),
    ("triton.runtime.interpreter", BREAK, "runs kernels"),
    ("triton.runtime.autotuner", BREAK, "runs kernels"),
    *((f"numpy.{name}", INLINE, "computes with arrays") for name in NUMPY_CODE),
    ("numpy", BREAK, "NumPy's insides"),
)


def _folders(package: str) -> list[str]:
    """Where a package lies, without importing it; nowhere when it is not installed."""
    found = importlib.util.find_spec(package)
    return [] if found is None else list(found.submodule_search_locations or ())


_DISABLE_MARKS = ("_torchdynamo_disable", "__tracework_disable__")
_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_COMPILED = (
    os.path.join(os.path.dirname(torch.__file__), "_dynamo") + os.sep,
    *(folder + os.sep for name in ("tracework_aotautograd", "tracework_runtime") for folder in _folders(name)),
    "<tracework",
    "<frozen importlib",
)
"""Where code starts that runs what is compiled already, what this stack generates, and imports, whose code runs once."""

_TORCH_CAPTURED = tuple(
    _TORCH + part.replace("/", os.sep) for part in ("nn/", "optim/", "distributed/algorithms/_checkpoint/checkpoint_wrapper.py")
)
_LIBRARIES = tuple(os.path.realpath(folder) + os.sep for name in ("numpy", "triton") for folder in _folders(name))
"""Packages whose Python code does not compute with tensors, wherever they are installed."""
_HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_AROUND = frozenset((os.path.join(os.path.dirname(torch.__file__), "_dynamo", "external_utils.py"), array_functions.__file__))
"""Files of what decorators put around functions of the program."""
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_PACKING = (
    "pack_padded_sequence pad_packed_sequence _packed_sequence_init _packed_sequence_init_args invert_permutation"
).split()
_ASKING = frozenset(
    {
        torch.nn.init._no_grad_trunc_normal_.__code__,
        *(getattr(rnn, name).__code__ for name in _PACKING if hasattr(rnn, name)),
    }
)
"""Code that asks the data of what it has just drawn, again and again, and code around an operator that asks for data."""
_FRAMES: dict[str, bool] = {}


def is_disabled(function: Any) -> bool:
    """Whether the user or a library marked a function to run as plain Python."""
    marks = getattr(function, "__dict__", None)
    return bool(marks) and any(marks.get(mark) for mark in _DISABLE_MARKS)


def disabled_inside(function: Any) -> Any:
    """What a wrapper of torch.compile's disable(recursive=False) calls, None for other functions."""
    marks = getattr(function, "__dict__", None) or {}
    return marks.get("_torchdynamo_orig_callable") if marks.get("_torchdynamo_disable_recursive") is False else None


def _disable_reason(function: Any) -> str:
    marks = function.__dict__
    said = [marks.get("_torchdynamo_disable_msg"), marks.get("__tracework_disable__")]
    return next((f"marked as disabled: {text}" for text in said if isinstance(text, str)), "marked as disabled")


def call_policy(function: Any, module: str | None, qualname: str = "") -> tuple[str, str]:
    """(decision, reason) for a call of a Python function, or of one with this name that the traced program made (None)."""
    if function is not None and is_disabled(function):
        return BREAK, _disable_reason(function)
    if function is not None and not _C.runs_its_code(function):
        return BREAK, "an extension has put something else behind its calls"
    if module is None:
        return INLINE, ""
    name = f"{module}.{getattr(function, '__qualname__', qualname)}."
    for prefix, decision, reason in TRACE_POLICY:
        if name.startswith(prefix) and name[len(prefix)] == ".":
            return decision, f"{module}: {reason}"
    return INLINE, ""


_MODULE_CALLS = frozenset(
    {torch.nn.Module._wrapped_call_impl.__code__, torch.nn.Module._call_impl.__code__}  # all modules share them
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


def frame_is_captured(code: types.CodeType) -> bool:
    """Whether a frame of this code may start a graph: user code and torch.nn, not the standard library or torch's insides.

    A comprehension is run on an iterator that exists already; what it calls is still seen. The body of a module or class, and what
    exec runs, keeps its names in a dict that is not the frame's.
    """
    if code.co_name in _COMPREHENSIONS or not code.co_flags & inspect.CO_OPTIMIZED or original_code(code) in _ASKING:
        return False
    filename = code.co_filename
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


def is_of_torch(code: types.CodeType) -> bool:
    """Whether the code is torch's: the Python around an operator, as a rule."""
    return _file_is_of_torch(code.co_filename)


@functools.lru_cache(None)
def _file_is_of_torch(filename: str) -> bool:
    return os.path.realpath(filename).startswith(_TORCH)


def is_installed(code: types.CodeType) -> bool:
    """Whether the code is of Python's own library or of an installed package."""
    return is_installed_file(code.co_filename)


def is_of_a_package(code: types.CodeType) -> bool:
    """Whether the code is of an installed package: its `__getattr__` of a module, as a rule, imports and keeps what it gives."""
    return os.path.realpath(code.co_filename).startswith(SITE)


def runs_what_is_compiled(code: types.CodeType) -> bool:
    """Whether the frame is torch.compile's own, an import, or a backward of this stack, which the engine calls below any program: it
    and all below it are left alone. So is what a checkpoint runs, which the backward runs again where nothing is compiled: both times
    plainly, so that the same is saved.
    """
    if _torch.call_of_checkpointed is not None and code is _torch.call_of_checkpointed.__code__:
        return True
    return code.co_filename.startswith(_COMPILED) and code.co_filename not in _AROUND


def _file_is_captured(filename: str) -> bool:
    if filename.startswith(("<frozen", "<__array_function__")):
        return False
    if filename in _AROUND:
        return True
    path = os.path.realpath(filename)
    if path.startswith(_TORCH):
        return path.startswith(_TORCH_CAPTURED)
    if path.startswith(_LIBRARIES):
        return False
    if path.startswith(_HERE) or f"{os.sep}tracework_" in path and f"{os.sep}tests{os.sep}" not in path:
        return False
    return path.startswith(SITE) or not path.startswith(STDLIB)
