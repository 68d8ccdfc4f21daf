"""compile(): torch.compile's parameters; function, module, method and decorator forms."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack, overload

import torch
import tracework_capture as capture

from . import activity, backends, config, dynamism, logs, torch_settings
from .after_import import after_import
from .collector import without_collection
from .compiled_module import ARGUMENTS, CompiledModule, check_devices_of, entry_function, with_a_frame, wrap_module
from .dump import Dump, both
from .errors import InvalidArgument, NotCallable
from .observe import Observe, nothing
from .options import Options, build
from .user_line import levels_inside

after_import("torch._dynamo.exc", capture.errors_become_torchs)

_told: set[str] = set()
DECLARED = "__tracework_shapes__"
"""Where dynamic_spec leaves shapes on a function."""


def dynamic_spec(shapes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that declares shapes where a function, or a module's forward, is written: compile() takes them as its shapes_spec=."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function) or isinstance(function, (type, torch.nn.Module)):
            raise NotCallable(f"dynamic_spec(...) decorates a function, such as the forward of a module, not {function!r}.")
        setattr(function, DECLARED, shapes)
        return function

    return declare


def _check_flags(fullgraph: Any, dynamic: Any, disable: Any, recompile_limit: Any, name: Any, observe: Any) -> None:
    if not isinstance(fullgraph, bool):
        raise InvalidArgument(f"fullgraph= takes True or False, not {fullgraph!r}.")
    if dynamic not in (None, True, False):
        raise InvalidArgument(f"dynamic= takes None, True or False, not {dynamic!r}.")
    if not isinstance(disable, bool):
        raise InvalidArgument(f"disable= takes True or False, not {disable!r}.")
    if recompile_limit is not None and (type(recompile_limit) is not int or recompile_limit < 1):
        raise InvalidArgument(f"recompile_limit= takes a positive int, not {recompile_limit!r}.")
    if name is not None and not isinstance(name, str):
        raise InvalidArgument(f"name= takes a string, not {name!r}.")
    if not callable(observe):
        raise InvalidArgument(f"observe= takes a function of (stage name, product), not {observe!r}.")


def _say_what_is_missing(options: Options) -> None:
    """What is asked for and does not exist yet, or not on this machine, is told once."""
    missing = {
        "fallback_random=False: there is no generator of our own yet; eager's is used.": not options.fallback_random,
        "cudagraphs (mode reduce-overhead) needs a CUDA device and there is none; graphs run without.": options.cudagraphs
        and not torch.cuda.is_available(),
    }
    for text, asked in missing.items():
        if asked and text not in _told:
            _told.add(text)
            warnings.warn(text, stacklevel=levels_inside())


def _shapes(arguments: Mapping[str, Any], function: Callable[..., Any], through: bool = False) -> Any:
    """The declared shapes by where arguments are found: those of the call, or those that dynamic_spec left. Raises InvalidArgument."""
    given, attached = arguments["shapes_spec"], getattr(function, DECLARED, None)
    if given is not None and attached is not None:
        raise InvalidArgument(f"shapes_spec= is given, and {function.__qualname__} has a dynamic_spec. Leave one out.")
    if attached is not None and arguments["dynamic"] is not None:
        raise InvalidArgument(f"dynamic= is given, and {function.__qualname__} has a dynamic_spec. Leave one out.")
    declared = given if attached is None else attached
    if declared is None:
        return None
    try:
        return capture.declared_shapes(declared, function, through)
    except capture.ControlMisuse as error:
        raise InvalidArgument(str(error)) from error


class _Partial(functools.partial[Any]):
    """A partial function that equals another one of the same function and arguments: equal compile calls give equal ones."""

    def __eq__(self, other: object) -> bool:
        return type(other) is _Partial and (self.func, self.args, self.keywords) == (other.func, other.args, other.keywords)

    def __hash__(self) -> int:
        return hash(self.func)


def _optimizer(
    arguments: Mapping[str, Any], observe: Observe, shapes: Any = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Checks every argument now, before anything is compiled, and gives the function that compiles a callable."""
    environment = config.current()
    mode, ours, given = backends.apart(arguments["backend"], arguments["mode"], arguments["options"])
    options = build(mode, ours, environment)
    settings = torch_settings.now(environment.torchs, options=False)
    job_id = settings.job_id or environment.job_id
    if environment.dynamism:
        dynamism.keep(environment.dynamism)
    elif job_id:
        dynamism.keep_job(job_id, options)
    if environment.trace_dir:
        from .reports.trace import begin  # with what makes data of products

        begin(environment.trace_dir)
    if logs.enable_from(environment):
        observe = both(observe, logs.log_product)
    if options.dump_dir:
        try:
            observe = both(observe, Dump(options.dump_dir, options.diagram, options))
        except OSError as error:
            raise InvalidArgument(f"option 'dump_dir': {error}. Give a folder that can be written.") from error
    backend = backends.resolve(arguments["backend"], options, observe, given)
    _say_what_is_missing(options)
    return capture.optimize(
        backend,
        fullgraph=arguments["fullgraph"],
        dynamic=arguments["dynamic"],
        recompile_limit=arguments["recompile_limit"],
        settings=_Partial(_under, arguments, options, environment.torchs),
        guard_filter_fn=options.guard_filter_fn,
        name=arguments["name"],
        observe=observe,
        dynamic_sources=_names(options.dynamic_sources),
        static_sources=_names(options.static_sources),
        unbacked_sources=_names(options.unbacked_sources),
        dynamic_values=_numbers(options.dynamic_values),
        unbacked=_unbacked(options, arguments),
        shapes=shapes,
        on_failure=_run_uncompiled if options.suppress_errors else None,
        around=_Partial(activity.frame, options.progress),
    )


def _under(
    arguments: Mapping[str, Any], options: Options, of_environment: Mapping[str, Any], before: capture.CaptureOptions
) -> capture.CaptureOptions:
    """The options of capture under what holds for the process now; arguments of compile() come first."""
    settings = torch_settings.now(of_environment, options=False)
    limit, dynamic, unbacked = arguments["recompile_limit"], arguments["dynamic"], _unbacked(options, arguments)
    if dynamic is None and arguments["shapes_spec"] is None:
        dynamic = settings.dynamic
    if options.unbacked is None and (settings.capture_scalar_outputs or settings.capture_dynamic_output_shape_ops):
        unbacked = True
    changes = {
        "recompile_limit": limit or settings.recompile_limit or capture.CaptureOptions.recompile_limit,
        "fail_on_limit": settings.fail_on_recompile_limit_hit,
        "error_on_recompile": settings.error_on_recompile,
        "dynamic": dynamic,
        "unbacked": False if before.symbolic_sizes is False else unbacked,
    }
    same = all(getattr(before, name) == value for name, value in changes.items())
    return before if same else dataclasses.replace(before, **changes)


def _run_uncompiled(gm: torch.fx.GraphModule, error: Exception) -> Callable[..., Any]:
    from . import assemble  # which imports every package

    return assemble.run_uncompiled(gm, error)


def _unbacked(options: Options, arguments: Mapping[str, Any]) -> bool | None:
    """Numbers and sizes that depend on data stay where a break is an error; elsewhere, for backends that know them, sizes do."""
    if options.unbacked is not None:
        return options.unbacked
    if arguments["fullgraph"]:
        return True
    return None if backends.is_ours(arguments["backend"]) else False


def _names(text: str) -> list[str]:
    """The names, or regular expressions, in a comma-separated list; torch.compile's spelling `L['x'].y` is ours `x.y`."""
    names = [re.sub(r"^[LG]\['(\w+)'\]", r"\1", name.strip()) for name in text.split(",") if name.strip()]
    for name in names:
        try:
            re.compile(name)
        except re.error as error:
            raise InvalidArgument(f"{name!r} in {text!r} is neither a name nor a regular expression: {error}.") from error
    return names


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in _names(text)]
    except ValueError as error:
        raise InvalidArgument(f"dynamic_values takes comma-separated integers, not {text!r}: {error}.") from error


def _compile_module(module: torch.nn.Module, arguments: dict[str, Any], observe: Observe = nothing) -> torch.nn.Module:
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidArgument("a ScriptModule is already compiled by torch.jit; give the nn.Module that it was made from.")
    if config.current().disable:  # a compiled module that was saved is loaded
        return module
    if isinstance(module, CompiledModule):
        module = module._orig_mod
    check_devices_of(module)
    shapes = _shapes(arguments, module.forward, through=True)
    return wrap_module(module, _optimizer(arguments, observe, shapes), arguments, _compile_module, _aot_compile)


def _compile_class(cls: type, optimize: Callable[[Callable[..., Any]], Callable[..., Any]]) -> type:
    """The class, with the calls of its instances compiled, as with torch.compile. Raises NotCallable."""
    name = "_call_impl" if issubclass(cls, torch.nn.Module) else "__call__"
    method = getattr(cls, name, None)
    if not isinstance(method, types.FunctionType):
        raise NotCallable(
            f"compile() got the class {cls.__name__}, whose instances have no __call__ written in Python. Compile a function, or a"
            " method of an instance."
        )
    setattr(cls, name, optimize(method))
    return cls


class CompileArguments(TypedDict, total=False):
    """The keyword arguments of compile(), for type checkers and editors."""

    fullgraph: bool
    dynamic: bool | None
    backend: str | backends.Backend | None
    mode: str | None
    options: Mapping[str, Any] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: Any
    dynamic_shapes: Any
    observe: Observe


_Model = TypeVar("_Model", bound=Callable[..., Any])


@overload
def compile(model: _Model, **arguments: Unpack[CompileArguments]) -> _Model: ...
@overload
def compile(model: None = None, **arguments: Unpack[CompileArguments]) -> Callable[[_Model], _Model]: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | backends.Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    dynamic_shapes: Any = None,
    observe: Observe = nothing,
) -> Any:
    """Makes a callable faster; compiles at the first call and again when a guard fails.

    Args:
        model: a function, method, nn.Module or other callable; left out, `compile` is a decorator with arguments. Of a class the
            calls of its instances are compiled.
        fullgraph: raise, with the user's line and a reason, where the graph would break.
        dynamic: True: sizes are symbols from the start; False: never; None: a size becomes a symbol when it has changed.
        backend: a name of `list_backends(None)`, or a callable `(fx.GraphModule, example_inputs) -> callable`.
        mode: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs" or "lite". Not together with options.
        options: see `list_options()`; those of torch.compile are taken by FROM_TORCH.md, and a backend with options of its own gets these.
        name: what messages on recompiling and limits show beside the function.
        disable: give `model` back as it is.
        recompile_limit: entries per code object before the rest runs uncompiled, with one warning; None is the default of 8.
        isolate_recompiles: always so here: entries, and the limit on them, belong to one compile() call, whatever is given.
        shapes_spec: shapes by the names of parameters: for a tensor a list with an entry for each dim (or a dict of dims), which is None (fixed), an int
            (that size only), a name (any size; those of one name are equal) or a `compiler.DimRange(lower, upper, group)`; for an int
            the entry itself; lists and dicts of these for lists and dicts. Sizes and ints that it does not name are fixed.
        dynamic_shapes: the same under its later name.
        observe: called with (stage name, printable product) as each stage finishes.

    Returns:
        A callable with eager's results. For an nn.Module: a module that shares everything with the one given.

    Raises:
        InvalidArgument, UnknownName, NotCallable, MixedDevices: before anything is compiled.
    """
    if shapes_spec is not None and dynamic_shapes is not None:
        raise InvalidArgument("shapes_spec= and dynamic_shapes= are two names of one argument. Leave one out.")
    shapes_spec = dynamic_shapes if shapes_spec is None else shapes_spec
    arguments: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
        "shapes_spec": shapes_spec,
    }
    _check_flags(fullgraph, dynamic, disable, recompile_limit, name, observe)
    if shapes_spec is not None and dynamic is not None:
        raise InvalidArgument("dynamic= and shapes_spec= say the same in two ways. Leave one out.")
    if model is None:
        return lambda fn: compile(fn, **arguments, disable=disable, isolate_recompiles=isolate_recompiles, observe=observe)
    if not callable(model):
        raise NotCallable(f"compile() takes a function, method or nn.Module, not {type(model).__name__}: {model!r}.")
    environment = config.current()
    if disable or environment.disable or torch_settings.now(environment.torchs, options=False).disable:
        return model
    with without_collection():  # capture and the backend import what they need
        if isinstance(model, torch.nn.Module):
            return _compile_module(model, arguments, observe)
        if isinstance(model, type):
            if shapes_spec is not None:
                raise InvalidArgument("shapes_spec= is for one callable, not for a class. Compile an instance, or its method.")
            return _compile_class(model, _optimizer(arguments, observe))
        target = with_a_frame(model)
        shapes = _shapes(arguments, model, through=target is not model)
        compiled: Any = _optimizer(arguments, observe, shapes)(target)
        setattr(compiled, ARGUMENTS, arguments)
        compiled.aot_compile = functools.partial(_aot_compile, model, arguments)
        return compiled


def _aot_compile(model: Callable[..., Any], arguments: Mapping[str, Any], inputs: Any) -> Any:
    """What compile(f).aot_compile() does."""
    from .programs import aot_compile_as  # which imports every package

    return aot_compile_as(model, arguments, inputs)


def compile_in_place(module: torch.nn.Module, **arguments: Any) -> None:
    """`nn.Module.compile()` with this compiler: the module itself runs compiled from now on. Takes compile()'s arguments."""
    if not isinstance(module, torch.nn.Module):
        raise NotCallable(f"compile_in_place() takes an nn.Module, not {type(module).__name__}.")
    check_devices_of(module)
    module._compiled_call_impl = compile(entry_function(module, "_call_impl"), **arguments)
