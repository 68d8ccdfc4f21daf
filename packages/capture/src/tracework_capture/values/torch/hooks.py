"""Hooks: of modules, of tensors, and of what autograd saves.

Backward hooks of modules are nodes of the graph that set up torch's own BackwardHook, around the nodes of the module's call. The hooks
themselves are never traced. The autograd engine runs them at backward time, with real gradients, as it does for plain Python; so later stages
call these nodes as they are, and compile what is between them.

Of a tensor made in the traced program the hook is traced, and becomes a graph that a node registers; one that cannot be traced, or changes
Python objects, is registered as it is where it is the same function at each call. Leaves and tensors that were there before get theirs when the
graph has run, as any other object that is changed.

Forward hooks that the traced program puts on modules which were there before, and takes off again before it ends or the graph breaks, are
part of the trace alone: no table of a module is written to. Where one of them would be on when the graph has run, or something asks for its
handle or for the tables, the frame is captured again, and the graph breaks where the hook is put on.

torch.autograd.graph.saved_tensors_hooks and save_on_cpu inside the traced program are a block of the graph that later stages call as it is,
under the hooks, which see what eager saves. Tensors are packed while the graph runs, so the pack hook may neither see nor change what the
program does meanwhile: of functions of the program those that name nothing but torch and a few builtins. Unpacking is for the backward, and
may do anything.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, cast

import torch
from torch import fx
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle
from tracework_primops import FakeTensor

from ... import _torch
from ...errors import BreakGraph
from ...graph.checks import isolate_node
from ...graph.regions import Placed
from ...plan import Again, Learnt
from ...sources import Attr, Const, InstanceAttr, Source
from ..number.deferred import place_here
from ..objects.function import BoundMethodValue, FunctionValue, NewFunctionValue, call_own_code
from ..objects.rows_attributes import call_after_graph
from ..objects.rows_warned import warn_at
from ..plain.sequence import NONE, TupleValue
from ..protocol.binding import BoundBuiltin, class_value
from ..protocol.calls import call, method
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractFunction, AbstractModule, AbstractTensor
from ..protocol.make import make
from ..protocol.memory import remember
from ..protocol.region import Region
from ..protocol.value import Emitter, Frame, SymbolicRaise, Value
from .context import Blocks, ContextValue
from .leaves import leaf_of

OWN_TABLES = ("_backward_hooks", "_backward_pre_hooks")
GLOBAL_TABLES = ("_global_backward_hooks", "_global_backward_pre_hooks")
TORCH_MODULE = Const(torch_module, "torch.nn.modules.module")


class NodeTarget:
    """What a node of a graph calls, under a name of its own."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__


class MakeHook(NodeTarget):
    """Makes the BackwardHook of one call of a module, with the hooks that the module has then; target of a node.

    count: how many arguments the call has where no gradient goes to one of them; None otherwise.
    """

    def __init__(self, module: torch.nn.Module, count: int | None) -> None:
        super().__init__("make_backward_hook")
        self.module, self.count = weakref.ref(module), count

    def __call__(self) -> Any:
        hook = _torch.modules.backward_hook(cast(torch.nn.Module, self.module()))
        if self.count is not None:
            hook.setup_input_hook((None,) * self.count)
        return hook


class PassThrough(NodeTarget):
    """Leads the tensors among the arguments or results of a module's call through its BackwardHook; target of a node.

    method: setup_input_hook or setup_output_hook. places: where the tensors are among `count` values.
    """

    def __init__(self, method: str, places: tuple[int, ...], count: int) -> None:
        super().__init__(method)
        self.places, self.count = places, count

    def __call__(self, hook: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values: list[torch.Tensor | None] = [None] * self.count
        for place, tensor in zip(self.places, tensors):
            values[place] = tensor
        found = getattr(hook, self.__name__)(tuple(values))
        return tuple([found[place] for place in self.places])


class ModuleHooks:
    """The backward hooks of one call of a module that has some, while the call is traced."""

    def __init__(self, frame: Frame, module: AbstractModule) -> None:
        break_at_old_hooks(frame, module)
        self.module, self.arguments = module, 0
        self.node: fx.Node | None = None
        frame.guard("IDENTITY", module.source, module.obj)

    def enter(self, frame: Frame, args: list[Value]) -> list[Value]:
        """The arguments, as forward gets them."""
        self.arguments = len(args)
        return self.through(frame, args, "setup_input_hook")

    def leave(self, frame: Frame, result: Value) -> Value:
        """The result, as the caller gets it."""
        if isinstance(result, AbstractTensor):
            return self.through(frame, [result], "setup_output_hook")[0]
        if not issubclass(result.python_type(), tuple):
            text = "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors"
            warn_in_call(frame, f"{text} but received {result.python_type()}")
            return result
        if not isinstance(result, TupleValue):
            return frame.break_graph("hook", f"backward hooks of a module that gives a {result.describe()}")
        items = result.unpack(frame)
        passed = self.through(frame, items, "setup_output_hook")
        if passed is items:
            return result
        if result.cls is not tuple:
            return class_value(frame, result.cls).call(frame, passed, {})
        return TupleValue(passed)

    def through(self, frame: Frame, values: list[Value], method: str) -> list[Value]:
        tensors: dict[int, Any] = {i: v for i, v in enumerate(values) if issubclass(v.python_type(), torch.Tensor)}
        if not torch.is_grad_enabled() or not any(v.example.requires_grad for v in tensors.values()):
            return values
        if frame.modes.transforms:
            return frame.break_graph("hook", "backward hooks of a module under a transform of torch.func")
        if any(v.python_type() not in (torch.Tensor, torch.nn.Parameter) for v in tensors.values()):
            return frame.break_graph("hook", "backward hooks of a module that is given a subclass of Tensor")
        if self.node is None:
            count = self.arguments if method == "setup_output_hook" else None
            self.node = as_it_is(frame, MakeHook(self.module.obj, count), (), None)
        nodes = tuple(v.as_graph_arg(frame) for v in tensors.values())
        example = frame.graph.run_on_fakes(frame, _torch.modules.through_backward_hook, nodes, {}, "call_function")
        node = as_it_is(frame, PassThrough(method, tuple(tensors), len(values)), (self.node, *nodes), example)
        passed = frame.graph.wrap_result(frame, node, example).unpack(frame)
        found = dict(zip(tensors, passed))
        return [found.get(i, v) for i, v in enumerate(values)]


def as_it_is(frame: Frame, target: Any, args: tuple[fx.Node, ...], example: tuple[FakeTensor] | None) -> fx.Node:
    """A node that later stages call, in its place among the others."""
    node = frame.graph.known_node(frame, target, args, example, data_dependent=True, of_history=True)
    if frame.plan.learnt.isolated:
        isolate_node(frame, node)
    return node


def has_hooks(frame: Frame, module: AbstractModule) -> bool:
    """Whether a call of the module has backward hooks; guarded is whether there are some, since they are looked up when the graph runs."""
    own = [(table_source(module.source, name), module.existing(frame, name)) for name in OWN_TABLES]
    shared = [(table_source(TORCH_MODULE, name), getattr(torch_module, name)) for name in GLOBAL_TABLES]
    for source, table in own + shared:
        guard_table(frame, source, table, "TRUTH", True)
    return any(table for _, table in own + shared)


def table_source(source: Source, name: str) -> Source:
    """Where a table of hooks of a module, or of all modules, is."""
    return Attr(source, name) if source is TORCH_MODULE else InstanceAttr(source, name)


def guard_table(frame: Frame, source: Source, table: dict[Any, Any], kind: str, payload: int) -> None:
    """The guard of a table that holds hooks; that there are none is checked by the version of the dict."""
    if table:
        frame.guard(kind, source, payload)
    else:
        frame.guard("DICT_KEYS", source, ())


def break_at_old_hooks(frame: Frame, module: AbstractModule) -> None:
    """Breaks the graph where hooks were registered by register_backward_hook; what was looked at is guarded."""
    own, shared = module.obj._is_full_backward_hook, _torch.modules.hooks_of_all_modules_are_full()
    frame.guard("CONSTANT", InstanceAttr(module.source, "_is_full_backward_hook"), own)
    frame.guard("CONSTANT", Attr(TORCH_MODULE, "_global_is_full_backward_hook"), shared)
    if _torch.modules.has_old_hooks(module.obj):
        frame.break_graph(
            "hook", f"{module.cls.__name__} has hooks of register_backward_hook; register_full_backward_hook replaces it"
        )


def warn_in_call(frame: Frame, text: str) -> None:
    """What Module.__call__ warns of: for its own line, in which its inner function is called."""
    code = _torch.modules.module_call.__code__
    places = [i.positions for i in dis.get_instructions(code) if i.argval == "inner"]
    line = max(p.lineno for p in places if p is not None and p.lineno)
    warn = functools.partial(warn_at, vars(torch_module), code.co_filename, line)
    call_after_graph(frame, warn, [ConstantValue(text), ConstantValue(None), NONE], {})


# --- of tensors ------------------------------------------------------------------------------------------------------------------


class HookCall(NodeTarget):
    """Registers a captured hook; target of a call_function node."""

    def __init__(self, run: Placed) -> None:
        super().__init__("register_hook")
        self.run = run

    def __call__(self, tensor: torch.Tensor, *read: torch.Tensor) -> RemovableHandle:
        def hook(gradient: torch.Tensor | None) -> torch.Tensor | None:
            if gradient is None:  # to another result of the operator one came; what was traced is what the hook does with one
                return None
            changed: torch.Tensor | None = self.run(gradient.contiguous(), *read)[0]
            return changed

        handle: RemovableHandle = tensor.register_hook(hook)
        return handle


class RegisterHook(NodeTarget):
    """Registers a hook that the program has, which runs at backward time as it is; target of a node. `make` gives the hook."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__("register_hook")
        self.make = make

    def __call__(self, tensor: torch.Tensor) -> RemovableHandle:
        handle: RemovableHandle = tensor.register_hook(self.make())
        return handle


def real_function(frame: Frame, value: Value) -> Callable[[], Any] | None:
    """What gives the function that a value stands for, guarded, where it is the same one at each call; None for others."""
    if isinstance(value, NewFunctionValue):
        cells: Sequence[Any] = value.closure(frame)
        if value.default_count() or value.has_more() or any(cell.cell is None or cell.source is None for cell in cells):
            return None
        for cell in cells:
            frame.guard("IDENTITY", cell.source, cell.cell)
        made = types.FunctionType(value.code, value.globals, None, None, tuple(cell.cell for cell in cells))
        return lambda: made
    if isinstance(value, BoundMethodValue):
        return real_method(frame, value)
    if not isinstance(value, FunctionValue) or value.source is None:
        return None
    made = value.real()
    frame.guard("IDENTITY", value.source, made)
    return lambda: made


def real_method(frame: Frame, value: Any) -> Callable[[], Any] | None:
    """The same of a method, whose owner the graph does not keep alive."""
    owner, make = value.owner, real_function(frame, value.function)
    if getattr(owner, "obj", None) is None or owner.source is None or make is None:
        return None
    frame.guard("IDENTITY", owner.source, owner.obj)
    try:
        return weakref.WeakMethod(types.MethodType(make(), owner.obj))
    except TypeError:
        return None


def remove_hook(handle: RemovableHandle) -> None:
    """handle.remove(), as the target of a node."""
    handle.remove()


class Handle(Value):
    """What register_hook gives: removing it is all that is modelled."""

    cls = RemovableHandle

    def remove(self, frame: Frame) -> None:
        """The hook is not called any more."""
        raise NotImplementedError

    def getattr(self, frame: Frame, name: str) -> Value:
        return BoundBuiltin(self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name != "remove":
            return frame.break_graph("hook", f"{name} of the handle of a hook")
        self.remove(frame)
        return NONE


class HandleValue(Handle):
    """The handle of a hook that the graph registers."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__(None)
        self.node = node

    def remove(self, frame: Frame) -> None:
        if isinstance(self.node.target, RegisterHook):
            as_it_is(frame, remove_hook, (self.node,), None)
        else:
            frame.graph.plain_node(frame, remove_hook, (self.node,), of_history=True)


class DeferredHandle(Handle):
    """The handle of a hook that is registered when the graph has run, which loading the handle does."""

    def __init__(self, tensor: AbstractTensor, method: str, hook: Value) -> None:
        super().__init__(None)
        self.tensor, self.method, self.hook = tensor, method, hook
        self.version, self.removed = tensor.example.storage.version, False

    def remove(self, frame: Frame) -> None:
        self.removed = True
        self.tensor.hooks = tuple(hook for hook in self.tensor.hooks if hook is not self)
        frame.mutations.drop(("hook", self))

    def reload(self, emit: Emitter) -> str:
        if self.removed or self.tensor.example.storage.version != self.version:
            raise BreakGraph("hook", "a hook that was removed again, or whose tensor was written to afterwards")
        return f"{emit.load(self.tensor)}.{self.method}({emit.load(self.hook)})"


def register_after_graph(frame: Frame, tensor: AbstractTensor, method: str, hook: Value) -> Handle:
    """A hook that is one of the tensor's when the graph has run; a backward of this frame calls it itself."""
    handle = DeferredHandle(tensor, method, hook)
    tensor.hooks += (handle,)
    frame.mutations.effect(("hook", handle), lambda emit: emit.load(handle))
    return handle


@method(torch.Tensor, "register_post_accumulate_grad_hook")
def register_post_accumulate_grad_hook(
    frame: Frame, tensor: AbstractTensor, name: str, args: list[Any], kwargs: dict[str, Any]
) -> Value:
    """Tensor.register_post_accumulate_grad_hook(hook), of leaves only"""
    if frame.modes.transforms or not tensor.example.requires_grad or not tensor.is_leaf():
        return frame.break_graph("hook", f"{name} of a tensor that is no leaf with a gradient")
    return register_after_graph(frame, tensor, name, args[0] if args else kwargs["hook"])


@method(torch.Tensor, "retain_grad")
def retain_grad(frame: Frame, tensor: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.retain_grad(): a backward of this frame gives the tensor its gradient; others, when it has left the graph."""
    if frame.modes.transforms or not tensor.example.requires_grad:
        return frame.break_graph("hook", "retain_grad of a tensor without history")
    if leaf_of(frame, tensor):
        return NONE
    if not isinstance(tensor.example, FakeTensor) and tensor.source is None:
        return frame.break_graph(
            "hook", "retain_grad of a tensor of a wrapper subclass that was made here, of which the parts leave"
        )
    if tensor.source is not None:
        frame.mutations.call(torch.Tensor.retain_grad, [tensor])
        tensor.hooks += (name,)
    else:
        tensor.retains_grad = True
    return NONE


def keeps_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which keeps its gradient; target of a node that later stages call as it is."""
    tensor.retain_grad()
    return tensor


@method(torch.Tensor, "register_hook")
def register_hook(frame: Frame, tensor: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.register_hook(hook)"""
    hook = args[0] if args else kwargs["hook"]
    if frame.modes.transforms or not tensor.example.requires_grad:
        return frame.break_graph("hook", "register_hook of a tensor without history")
    if tensor.source is not None or tensor.is_leaf():
        return register_after_graph(frame, tensor, name, hook)
    is_traced = not frame.plan.learnt.plain_hooks
    make = None if is_traced else real_function(frame, hook)
    if make is not None:
        return HandleValue(as_it_is(frame, RegisterHook(make), (tensor.as_graph_arg(frame),), None))
    gradient = gradient_of(frame, tensor)
    region = Region(frame, hook)
    try:
        with torch.no_grad():
            found = hook.call(frame, [gradient], {})
        why = region.what_changed()
        if not why and not isinstance(found, AbstractTensor) and not (found.is_constant() and found.constant() is None):
            why = f"gives a {found.describe()}"
    except (BreakGraph, SymbolicRaise) as stop:
        why = f"cannot be traced: {stop}"
    if why and is_traced:
        raise Again("hook_untraced", Learnt(plain_hooks=True), f"it {why}")
    if why:
        return frame.break_graph("hook", f"a hook of a tensor {why}, and is another function at each call")
    own = gradient.node
    made = region.outline([found.node if isinstance(found, AbstractTensor) else None], "Hook", [own])
    read = [n for n in made.inputs if n is not own]
    target = HookCall(made.among([own, *read]))
    return HandleValue(frame.graph.plain_node(frame, target, (tensor.node, *read), of_history=True))


def gradient_of(frame: Frame, tensor: AbstractTensor) -> AbstractTensor:
    """A stand-in for the gradient."""
    options = {"memory_format": torch.contiguous_format}
    with torch.no_grad():
        example = frame.graph.run_on_fakes(frame, torch.empty_like, (tensor.example,), options, "call_function")
    return stand_in_like(frame, example)


def stand_in_like(frame: Frame, example: FakeTensor) -> AbstractTensor:
    """A tensor that is not there yet, with a node that its user erases."""
    node = frame.graph.bare_node(torch.empty_like, (), example)
    value = make.tensor(node, example)
    remember(frame, value)
    return value


@call(RemovableHandle.remove)
def remove_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """RemovableHandle.remove of a handle that was there before, whose number is another one for each hook."""
    if len(args) == 1 and getattr(args[0], "obj", None) is not None and type(args[0].source) is not Const:
        return frame.break_graph("hook", f"remove() of {args[0].describe()}")
    return call_own_code(frame, RemovableHandle.remove, args, kwargs)


# --- that a frame puts on modules ------------------------------------------------------------------------------------------------

ROWS_OF_TABLES = {"register_forward_hook": "_forward_hooks", "register_forward_pre_hook": "_forward_pre_hooks"}
OF_ONE_FRAME = ("hook", "with_kwargs")
"""Arguments of a hook that is called like all others: after those that are there, and not in spite of an exception."""


class FrameHook(Handle):
    """The handle of one of them. `place`: where the program puts it on."""

    def __init__(
        self,
        frame: Frame,
        module: AbstractModule,
        table: str,
        hook: AbstractFunction,
        with_kwargs: bool,
        place: tuple[str, int, str, int],
    ) -> None:
        super().__init__(None)
        self.hooks = frame.modes.frame_hooks
        self.module, self.table, self.hook, self.with_kwargs, self.place = module, table, hook, with_kwargs, place
        self.hooks.append(self)

    def held(self) -> Iterable[Any]:
        return (self.hook,)

    def refused(self) -> NoReturn:
        """Raises Again: something needs the hook in the module's table, or its handle."""
        raise Again("hook_asked", Learnt(read_while_tracing=frozenset((self.place,))))

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__enter__":
            return self
        if name not in ("remove", "__exit__"):
            return self.refused()
        self.remove(frame)
        return NONE

    def remove(self, frame: Frame) -> None:
        if self in self.hooks:
            self.hooks.remove(self)

    def reload(self, emit: Emitter) -> str:
        return self.refused()


def put_on(frame: Frame, name: str, args: list[Any], kwargs: dict[str, Value]) -> Value | None:
    """The handle of module.register_forward_hook(hook) and its like; None where the hook must be one of the module."""
    given = dict(zip(OF_ONE_FRAME[:1], args[1:])) | kwargs
    place = place_here(frame)
    flags = {key: value for key, value in given.items() if key != "hook"}
    known = len(args) <= 2 and "hook" in given and all(value.is_constant() for value in flags.values())
    if not known or any(value.constant() for key, value in flags.items() if key not in OF_ONE_FRAME):
        return None
    if (
        frame.modes.transforms
        or frame.recording.selecting
        or place in frame.plan.learnt.read_while_tracing
        or args[0].source is None
    ):
        return None
    with_kwargs = "with_kwargs" in flags and bool(flags["with_kwargs"].constant())
    handle = FrameHook(frame, args[0], ROWS_OF_TABLES[name], given["hook"], with_kwargs, place)
    frame.modes.hook_numbers += 1
    frame.mutations.effect(("numbers of hooks",), lambda emit: count_hooks(emit, frame.modes.hook_numbers))
    return handle


def count_hooks(emit: Emitter, count: int) -> None:
    """Emits that so many hooks got their numbers."""
    emit.line(f"{emit.const(RemovableHandle)}.next_id += {count}")


def hooks_of_frame(frame: Frame, module: AbstractModule, table: str) -> list[Any]:
    """(hook, whether it gets keyword arguments) of those that are on, in their order."""
    return [(each.hook, each.with_kwargs) for each in frame.modes.frame_hooks if each.module is module and each.table == table]


# --- of what autograd saves ------------------------------------------------------------------------------------------------------

KNOWN_NAMES = frozenset("torch isinstance len tuple float int bool min max abs".split())
CHANGING_NAMES = ("set_", "save", "load", "manual_seed", "seed")
OTHER_OPCODES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "DELETE_", "IMPORT_", "MAKE_FUNCTION", "YIELD", "LOAD_NAME")


class EnterSavedHooks(NodeTarget):
    """Makes and enters a manager; target of a node."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        super().__init__(name)
        self.make = make

    def __call__(self) -> Any:
        return _torch.autograd.enter_saved_hooks(self.make())


def under_hooks(cls: Any, args: list[Value], kwargs: dict[str, Value], make: Callable[[], Any]) -> ContextValue:
    """A manager of hooks; `make` makes the one that the graph enters."""

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        if frame.modes.transforms or frame.modes.saved_hooks_refused:
            frame.break_graph("context_unknown", f"{cls.__name__} under a transform of torch.func, or where it is disabled")
        frame.modes.uses_saved_hooks = True
        entered = as_it_is(frame, EnterSavedHooks(make, cls.__name__), (), None)
        inside = Region(frame)
        yield None
        for node in inside.nodes():
            node.meta["data_dependent"] = True
        as_it_is(frame, _torch.autograd.leave_saved_hooks, (entered,), None)

    return ContextValue(cls, block, args, kwargs)


@call(torch.autograd.graph.saved_tensors_hooks)
def saved_hooks_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """saved_tensors_hooks(pack_hook, unpack_hook)"""
    cls = torch.autograd.graph.saved_tensors_hooks
    given = dict(zip(("pack_hook", "unpack_hook"), args)) | kwargs
    if len(args) > 2 or set(given) != {"pack_hook", "unpack_hook"}:
        return frame.break_graph("context_unknown", "saved_tensors_hooks with these arguments")
    hooks: list[Any] = [real_function(frame, given[name]) for name in ("pack_hook", "unpack_hook")]
    if None in hooks or type(hooks[0]()) is not types.FunctionType or not is_isolated(hooks[0]()):
        return frame.break_graph("hook", "saved_tensors_hooks whose pack hook may see or change what is outside of it")
    return under_hooks(cls, args, kwargs, lambda: cls(*(hook() for hook in hooks)))


@call(torch.autograd.graph.save_on_cpu)
def save_on_cpu_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """save_on_cpu(pin_memory, device_type)"""
    cls = torch.autograd.graph.save_on_cpu
    plain = [force_plain(frame, a) for a in args], {name: force_plain(frame, a) for name, a in kwargs.items()}
    return under_hooks(cls, args, kwargs, lambda: cls(*plain[0], **plain[1]))


def is_isolated(function: Callable[..., Any]) -> bool:
    """Whether a function names nothing through which it could reach what the program has."""
    code = function.__code__
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    others = any(i.opname.startswith(OTHER_OPCODES) for i in dis.get_instructions(code))
    known = names <= KNOWN_NAMES and function.__globals__.get("torch", torch) is torch
    known = known and not any(name in function.__globals__ for name in names - {"torch"})
    changing = any(name.startswith(CHANGING_NAMES) for name in code.co_names)
    return known and not (
        others or changing or code.co_freevars or code.co_cellvars or function.__defaults__ or function.__kwdefaults__
    )
