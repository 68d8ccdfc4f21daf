"""aot_compile() and save(): a function or module compiled ahead of its calls, as a whole, and written to a file."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import torch
import tracework_runtime as runtime

from . import backends, config
from .compiled_module import CompiledModule
from .errors import InvalidArgument, NotCallable
from .observe import Observe, nothing
from .options import build
from .seen_calls import examples_of
from .torch_shapes import of_exported
from .whole import NATIVE, compile_whole

Example = tuple[tuple[Any, ...], dict[str, Any]]


def aot_compile(
    function: Callable[..., Any] | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    observe: Observe = nothing,
    targets: Sequence[str] = (NATIVE,),
) -> runtime.Program:
    """Compiles a function or module for arguments like those given, without calling it. What it gives is called as the function is, for
    inference, and tracework.save() writes it to a file.

    Args:
        function: a function, method, nn.Module, what compile() gave for one, or a program that torch.export made.
        example_inputs: positional arguments; of an exported program they are known.
        example_kwargs: arguments by name.
        dynamic_shapes: sizes that change, as torch.export spells them: by the names of parameters `{dim: torch.export.Dim(...)}`. Dims that
            mark_dynamic() has marked change, too; all others are fixed.
        mode, options, observe: as compile()'s.
        targets: what kernels are built for: "native", this machine's CPU, or "avx2" (x86-64-v3) and "avx512" (x86-64-v4); GPUs by their compute
            capabilities, "sm_80" and "sm_90", or this machine's. One file has each CPU with each GPU, and load() takes the best one for its
            machine. How kernels are cut is chosen for this machine's GPU.

    Raises:
        CannotCarry: for what a file cannot have: side effects, globals and closures' variables that are read, gradients, ...
        tracework_capture.Unsupported: where the graph would break.
    """
    environment = config.current()
    chosen = build(mode, options, environment)
    if isinstance(function, torch.export.ExportedProgram):
        module, args, kwargs, known = of_exported(function)
        if example_inputs is not None or example_kwargs is not None:
            args, kwargs = _arguments(example_inputs, example_kwargs)
        spec = dynamic_shapes
        if spec is None:
            positional, by_name = known
            spec = {**dict(zip(_names(module), positional)), **by_name}
        return compile_whole(module, [(args, kwargs)], chosen, observe, dynamic_shapes=spec, targets=targets)
    if isinstance(function, CompiledModule):
        function = function._orig_mod
    function = getattr(function, "_torchdynamo_orig_callable", function)
    if not callable(function) or isinstance(function, type):
        raise NotCallable(f"aot_compile() takes a function, method, nn.Module or exported program, not {function!r}.")
    examples = [_arguments(example_inputs, example_kwargs)]
    return compile_whole(function, examples, chosen, observe, dynamic_shapes=dynamic_shapes, targets=targets)


def _names(module: torch.nn.Module) -> list[str]:
    return list(inspect.signature(module.forward).parameters)


def _arguments(args: Any, kwargs: Any) -> Example:
    if args is not None and not isinstance(args, (tuple, list)):
        raise InvalidArgument(f"example_inputs= takes a tuple of arguments, not a {type(args).__name__}. Write (x,).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidArgument(f"example_kwargs= takes a dict of arguments by name, not a {type(kwargs).__name__}.")
    return tuple(args or ()), dict(kwargs or {})


def aot_compile_as(function: Callable[..., Any], arguments: Mapping[str, Any], inputs: Any) -> runtime.Program:
    """torch.compile's `compile(f).aot_compile(((x,), {}))`: with the arguments of that compile() call. `inputs` may also be a list of such
    pairs, or of objects with `args` and `kwargs`; each gets a graph, and a call takes the first that fits."""
    backend = arguments.get("backend") or backends.get_default_backend()
    if backend != "inductor":
        raise InvalidArgument(f"aot_compile() is for backend='inductor', not {backend!r}: what that makes cannot be stored.")
    mode, ours, _ = backends.apart(backend, arguments.get("mode"), arguments.get("options"))
    examples = [_example(part) for part in (inputs if isinstance(inputs, list) else [inputs])]
    chosen = build(mode, ours, config.current())
    return compile_whole(
        function,
        examples,
        chosen,
        nothing,
        dynamic=arguments.get("dynamic"),
        shapes_spec=arguments.get("shapes_spec"),
    )


def _example(given: Any) -> Example:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (tuple, list)) and isinstance(given[1], Mapping):
        return tuple(given[0]), dict(given[1])
    if hasattr(given, "args") and hasattr(given, "kwargs"):
        return tuple(given.args), dict(given.kwargs)
    raise InvalidArgument(f"aot_compile() takes the pair (args, kwargs), as in ((x,), {{}}), not {given!r}.")


def save(
    program: Any, file: str | os.PathLike[str] | IO[bytes], *, weights: str = "inside", key: bytes | str | None = None
) -> None:
    """Writes a compiled function to one file, which load() reads on a machine without a compiler and without the program's source.

    Args:
        program: what aot_compile() gave; or what compile() gave, after calls: it is compiled as a whole for arguments like those of its entries.
        file: a name, such as "m.tw", or something that is open for writing bytes.
        weights: "inside" of the file; "beside" it, in `m.tw.weights`; "left out": it is loaded with a module that has them.
        key: signs the file, so that load(..., key=) takes it for yours.

    Raises:
        InvalidArgument: for anything else, and for a function that was not called yet.
        CannotCarry: see aot_compile().
    """
    if not isinstance(program, runtime.Program):
        program = _program_of(program, file)
    try:
        program.save(file, weights=weights, key=key)
    except ValueError as error:
        raise InvalidArgument(f"save(): {error}.") from error


def _program_of(compiled: Any, file: Any) -> runtime.Program:
    """What compile() gave, compiled as a whole for arguments like those that it has been called with."""
    ahead = getattr(compiled, "aot_compile", None)
    if not isinstance(ahead, functools.partial):
        raise InvalidArgument(
            f"save() takes what aot_compile() or compile() gave, not {compiled!r}. Write"
            f" save(aot_compile(fn, example_inputs), {str(file)!r})."
        )
    function, arguments = ahead.args
    entries = compiled._tracework.call if isinstance(compiled, CompiledModule) else compiled
    examples = examples_of(entries)
    if not examples:
        raise InvalidArgument("save(): the function has no entries. Call it first, or give aot_compile() example inputs.")
    mode, ours, _ = backends.apart(arguments.get("backend"), arguments.get("mode"), arguments.get("options"))
    given, shapes = [example[:2] for example in examples], [example[2] for example in examples]
    return compile_whole(function, given, build(mode, ours, config.current()), nothing, known=shapes)
