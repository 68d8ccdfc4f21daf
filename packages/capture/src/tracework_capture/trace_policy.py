"""TRACE_POLICY: what happens to a Python function when it is called in a traced program.

INLINE runs its code on Values; BREAK leaves it to plain Python (a graph break in the caller), PLAIN its caller, too.
"""

from __future__ import annotations

from typing import Any

from . import _C

INLINE, BREAK, PLAIN = "inline", "break", "plain"

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
    ("tracework_capture.polyfills", INLINE, "traced in place of C"),
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
    ("torch.distributed._functional_collectives", INLINE, "collectives as functions"),
    ("torch.distributed.tensor._api.distribute_module", INLINE, "hooks of modules"),
    ("torch.distributed.tensor.parallel.style", INLINE, "hooks of modules"),
    ("torch.distributed", BREAK, "process groups"),
    ("torch.nn.parallel", BREAK, "process groups; the module inside is compiled by itself"),
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

_DISABLE_MARKS = ("_torchdynamo_disable", "__tracework_disable__")


def is_disabled(function: Any) -> bool:
    """Whether the user or a library marked a function to run as plain Python."""
    marks = getattr(function, "__dict__", None) or {}
    return any(marks.get(mark) for mark in _DISABLE_MARKS)


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
