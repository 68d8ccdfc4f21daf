"""nn.Module: look-up in _parameters, _buffers and _modules, calls with and without hooks, containers, named_* iterators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.nn.modules.lazy import LazyModuleMixin
from tracework_primops import FakeTensor

from ..._torch.modules import always_called_hooks_of_all_modules, arguments_of_to, module_call, wrapped_module_call
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...plan import Again
from ...sources import DictValueAt, InstanceAttr, InstanceDict, ModuleEntry, Source
from ..objects.function import call_own_code, is_overridden, methods_called
from ..objects.instance import ObjectValue
from ..plain.iterators import SequenceIterator
from ..plain.mapping import dict_of
from ..plain.ranges import sequence_index
from ..plain.sequence import NONE, TupleValue
from ..protocol.calls import Handler, call
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractModule, AbstractTensor
from ..protocol.program_code import check_frame_hooks
from ..protocol.value import Emitter, Frame, SymbolicRaise, Value, is_none
from .hooks import (
    GLOBAL_TABLES,
    OWN_TABLES,
    ROWS_OF_TABLES,
    TORCH_MODULE,
    ModuleHooks,
    guard_table,
    has_hooks,
    hooks_of_frame,
    put_on,
    table_source,
)
from .tensor import TensorValue

Module = torch.nn.Module
TABLES = ("_parameters", "_buffers", "_modules")
OWN_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
OPTIONS = ("with_kwargs", "always_called")
"""Tables of options of forward hooks: numbers of the hooks that have them."""
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
ITERATES_MODULES = {torch.nn.ModuleList.__iter__, torch.nn.Sequential.__iter__}

INDEXES_MODULES = {torch.nn.ModuleList.__getitem__, torch.nn.Sequential.__getitem__}
COUNTS_MODULES = {torch.nn.ModuleList.__len__, torch.nn.Sequential.__len__}


class ModuleValue(ObjectValue, AbstractModule):
    """An existing nn.Module."""

    def written(self, frame: Frame, table: str) -> Any:
        """The value of a table (entries or hooks) that the traced program made or wrote to as a dict, None for others."""
        if table in self.fields:
            made = self.fields[table]
            return made if hasattr(made, "all_keys") else frame.break_graph("side_effect_unknown", f"{table} is no dict now")
        return written_dict(frame, self.obj.__dict__.get(table))

    def existing(self, frame: Frame, table: str) -> dict[Any, Any]:
        """The object's own dict of a table; where Module.__init__ has not run yet there is none."""
        if table not in self.obj.__dict__:
            return frame.break_graph("side_effect_unknown", f"{self.cls.__name__}.{table} before Module.__init__ has run")
        found = self.obj.__dict__[table]
        if not isinstance(found, dict):
            return frame.break_graph("side_effect_unknown", f"{self.cls.__name__}.{table}, which torch.jit holds")
        return found

    def names(self, frame: Frame, table: str) -> list[str]:
        """The keys of a table, guarded."""
        written = self.written(frame, table)
        if written is not None:
            return [force_plain(frame, key) for key in written.all_keys(frame)]
        entries = self.existing(frame, table)
        frame.guard("DICT_KEYS", InstanceAttr(self.source, table), tuple(entries))
        return list(entries)

    def entry(self, frame: Frame, name: str) -> Value | None:
        """What one of the three tables holds under name, or None; once the program wrote to one of them the tables come in the order in which
        Python looks."""
        attributes = self.obj.__dict__
        changed = {table: self.written(frame, table) for table in TABLES}
        is_changed = any(changed.values())
        if is_changed and self.replaced:
            return frame.break_graph("side_effect_unknown", "functional_call of a module whose tables were changed")
        if not is_changed and name in self.seen_entries:
            return self.seen_entries[name]
        for table in TABLES:
            entries = attributes.get(table) or {}
            found: Value | None = None
            if changed[table] is not None:
                found = changed[table].find_hashed(frame, name)
            elif name in entries:
                found = frame.wrap(entries[name], ModuleEntry(self.source, table, name))
            if found is None:
                continue
            if not is_changed:
                self.seen_entries[name] = found
                if name not in attributes:
                    frame.guard("DICT_LACKS", InstanceDict(self.source), name)
            return found
        return None

    def __init__(self, cls: type, obj: Any = None, source: Source | None = None, part: Any = None) -> None:
        super().__init__(cls, obj, source, part)
        self.seen_entries = {}
        self.hooks_guarded: tuple[list[str], bool] | None = None
        self.replaced = 0  # how many entries functional_call shows in place of its own

    def plain_getattr(self, frame: Frame, name: str, use_hook: bool = True) -> Value:
        if name.startswith(OWN_HOOKS) or name == "__dict__":
            check_frame_hooks(frame, self)
        if self.replaced and name in TABLES:
            return frame.break_graph("attribute_unknown", f"{name} of a module under functional_call")
        hook, owner = lookup_class(self.cls, "__getattr__")
        if (
            owner is Module
            and name not in self.fields
            and name not in self.obj.__dict__
            and lookup_class(self.cls, name)[0] is NO_ATTRIBUTE
        ):
            found = self.entry(frame, name)
            if found is not None:
                return found
        return super().plain_getattr(frame, name, use_hook)

    def missing(self, frame: Frame, name: str) -> Value:
        _, owner = lookup_class(self.cls, "__getattr__")
        if owner is Module:
            return self.module_getattr(frame, name)
        return super().missing(frame, name)

    def module_getattr(self, frame: Frame, name: str) -> Value:
        """Module.__getattr__"""
        found = self.entry(frame, name)
        if found is not None:
            return found
        for table in TABLES:
            if self.written(frame, table) is None:
                frame.guard("DICT_LACKS", InstanceAttr(self.source, table), name)
        return self.no_attribute(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        setter, owner = lookup_class(self.cls, "__setattr__")
        if owner is Module:
            self.module_setattr(frame, name, value)
            return
        super().setattr(frame, name, value)

    def module_setattr(self, frame: Frame, name: str, value: Value) -> None:
        """Module.__setattr__: buffers go to their table, for new buffers, parameters and modules its own code is traced."""
        attributes = self.obj.__dict__
        if any(table not in attributes for table in TABLES):
            frame.break_graph("side_effect_unknown", f"{self.cls.__name__}.{name} is set before Module.__init__ has run")
        if isinstance(value, ModuleValue) and name in attributes["_modules"] and self.entry(frame, name) is value:
            return  # the module that is there already
        changed = any(self.written(frame, table) is not None for table in TABLES)
        registers = issubclass(value.python_type(), (torch.nn.Parameter, Module))
        registers = registers or isinstance(value, TensorValue) and value.is_buffer()
        if changed or registers or name in attributes["_parameters"] or name in attributes["_modules"]:
            call_own_code(frame, Module.__setattr__, [self, ConstantValue(name), value], {})
            return
        if name in attributes["_buffers"]:
            if self.replaced:
                frame.break_graph("side_effect_unknown", f"functional_call: the module assigns to {name}")
            buffers: Any = frame.wrap(attributes["_buffers"], InstanceAttr(self.source, "_buffers"))
            buffers.store(frame, ConstantValue(name), value)
            return
        self.plain_setattr(frame, name, value)

    # --- calls --------------------------------------------------------------------------------------------------
    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        static, _ = lookup_class(self.cls, "__call__")
        if static is not Module.__dict__["__call__"]:
            return super().call(frame, args, kwargs)
        return self.call_impl(frame, args, kwargs)

    def call_impl(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Module.__call__"""
        if self.has_own_call(frame):
            return self.getattr(frame, "_call_impl").call(frame, args, kwargs)
        initialise(frame, self, args, kwargs)
        around, backward = self.active_hooks(frame)
        forward = self.getattr(frame, "forward")
        if not around and not backward:
            return forward.call(frame, args, kwargs)
        return self.call_with_hooks(frame, backward, forward, args, kwargs)

    def has_own_call(self, frame: Frame) -> bool:
        """Whether Module.__call__ calls something else than what Module has for it."""
        return lookup_class(self.cls, "_call_impl")[0] is not module_call or self.field(frame, "_call_impl") is not None

    def forward_alone(self, frame: Frame) -> Value | None:
        """What Module.__call__ calls with its arguments as they are; None where hooks see them, or code of the module's own."""
        if isinstance(self.obj, LazyModuleMixin) or self.has_own_call(frame):
            return None
        around, backward = self.active_hooks(frame)
        return None if around or backward else self.getattr(frame, "forward")

    def active_hooks(self, frame: Frame) -> tuple[list[Any], bool]:
        """(names of the tables of forward hooks that are not empty, whether there are backward hooks); guards what it looked at."""
        shared = [getattr(torch_module, n) for n in (*GLOBAL_HOOKS, *GLOBAL_TABLES)]
        own = [self.written(frame, n) for n in (*OWN_HOOKS, *OWN_TABLES)]
        if any(table is not None for table in (*own, *(written_dict(frame, t) for t in shared))):
            return frame.break_graph("hook", f"the hooks of {self.cls.__name__} were changed before in the traced program")
        if self.hooks_guarded is None:
            tables = [(self.source, n, self.existing(frame, n)) for n in OWN_HOOKS]
            tables += [(TORCH_MODULE, n, getattr(torch_module, n)) for n in GLOBAL_HOOKS]
            # each hook is guarded where it is called, and its number changes when it is registered again
            for source, name, hooks in tables:
                guard_table(frame, table_source(source, name), hooks, "LENGTH", len(hooks))
            active = [name for _, name, hooks in tables if hooks]
            self.hooks_guarded = active, has_hooks(frame, self)
        around, backward = self.hooks_guarded
        return [*around, *(name for name in OWN_HOOKS if hooks_of_frame(frame, self, name))], backward

    def call_with_hooks(self, frame: Frame, backward: bool, forward: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Forward hooks before and after; those of a backward see what is between."""
        around = ModuleHooks(frame, self) if backward else None
        try:
            args, kwargs = self.run_pre_hooks(frame, list(args), dict(kwargs))
            if around is not None:
                args = around.enter(frame, args)
            result = forward.call(frame, args, kwargs)
            for hook, with_kwargs in self.hook_functions(frame, "_forward_hooks"):
                found = hook.call(
                    frame, [self, TupleValue(args), *([dict_of(frame, kwargs.items())] if with_kwargs else []), result], {}
                )
                result = result if is_none(found) else found
            return result if around is None else around.leave(frame, result)
        except SymbolicRaise:
            if self.obj.__dict__["_forward_hooks_always_called"] or always_called_hooks_of_all_modules():
                frame.break_graph("hook", f"{self.cls.__name__} has a hook that is called in spite of an exception")
            raise

    def run_pre_hooks(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
        for hook, with_kwargs in self.hook_functions(frame, "_forward_pre_hooks"):
            given = [dict_of(frame, kwargs.items())] if with_kwargs else []
            found = hook.call(frame, [self, TupleValue(args), *given], {})
            if is_none(found):
                continue
            if not with_kwargs:
                args = found.unpack(frame) if isinstance(found, TupleValue) else [found]
                continue
            if not isinstance(found, TupleValue) or len(found.items) != 2:
                return frame.break_graph("hook", f"a pre-hook of {self.cls.__name__} gives no (args, kwargs)")
            new_kwargs: Any
            new_args, new_kwargs = found.unpack(frame)
            args = new_args.unpack(frame)
            kwargs = {force_plain(frame, k): v for k, v in new_kwargs.all_items(frame)}
        return args, kwargs

    def hook_functions(self, frame: Frame, name: str) -> list[tuple[Value, bool]]:
        """(hook value, whether it gets keyword arguments), in the order in which they run."""
        found = []
        for source, tables in ((TORCH_MODULE, vars(torch_module)), (self.source, self.obj.__dict__)):
            prefix = "_global" if source is TORCH_MODULE else ""
            hooks: dict[int, Any] = tables[prefix + name]
            options: list[Any] = [tables.get(f"{prefix}{name}_{o}") for o in OPTIONS]
            held = table_source(source, prefix + name)
            for table, option in zip(options, OPTIONS) if hooks else ():
                if table is not None:
                    frame.guard("DICT_KEYS", table_source(source, f"{prefix}{name}_{option}"), tuple(table))
            if any(options):
                frame.guard("DICT_KEYS", held, tuple(hooks))
            found += [
                (frame.wrap(hook, DictValueAt(held, place)), bool(options[0]) and number in options[0])
                for place, (number, hook) in enumerate(hooks.items())
            ]
        return found + hooks_of_frame(frame, self, name)

    # --- containers ---------------------------------------------------------------------------------------------
    def is_fixed(self) -> bool:
        return lookup_class(self.cls, "__iter__")[0] in ITERATES_MODULES

    def iterate(self, frame: Frame) -> Value:
        return SequenceIterator(self.children(frame)) if self.is_fixed() else super().iterate(frame)

    def getitem(self, frame: Frame, key: Value) -> Value:
        if lookup_class(self.cls, "__getitem__")[0] not in INDEXES_MODULES:
            return super().getitem(frame, key)
        children = self.children(frame)
        index = sequence_index(frame, key)
        if isinstance(index, slice):
            return ModuleSlice(self.cls, children[index])
        if not -len(children) <= index < len(children):
            return frame.raise_new(IndexError, f"index {index} is out of range")
        return children[index]

    def length(self, frame: Frame) -> Value:
        if lookup_class(self.cls, "__len__")[0] in COUNTS_MODULES:
            return ConstantValue(len(self.children(frame)))
        return super().length(frame)

    def children(self, frame: Frame) -> list[Value]:
        """Values of _modules, in order."""
        return [entry_of(frame, self, name) for name in self.names(frame, "_modules")]

    def identity(self, frame: Frame) -> Any:
        """The module itself. Reached through guarded paths, so its identity is guarded where it matters (as a key)."""
        frame.guard("IDENTITY", self.source, self.obj)
        return self.obj


class ModuleSlice(Value):
    """layers[a:b]: a new ModuleList or Sequential over existing modules."""

    def __init__(self, cls: type, modules: list[Any]) -> None:
        super().__init__(None)
        self.cls = cls
        self.modules = modules

    def truth(self, frame: Frame) -> bool:
        return bool(self.modules)

    def length(self, frame: Frame) -> Value:
        return ConstantValue(len(self.modules))

    def is_fixed(self) -> bool:
        return True

    def iterate(self, frame: Frame) -> Value:
        return SequenceIterator(self.modules)

    def getitem(self, frame: Frame, key: Value) -> Value:
        index = sequence_index(frame, key)
        return ModuleSlice(self.cls, self.modules[index]) if isinstance(index, slice) else self.modules[index]

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is not torch.nn.Sequential:
            return super().call(frame, args, kwargs)
        value = args[0]
        for module in self.modules:
            value = module.call(frame, [value], {})
        return value

    def reload(self, emit: Emitter) -> str:
        items = ", ".join(emit.load(m) for m in self.modules)
        cls = emit.known(self.cls, self.cls.__name__)
        return f"{cls}({items})" if self.cls is torch.nn.Sequential else f"{cls}([{items}])"


def written_dict(frame: Frame, obj: Any) -> Any:
    """The value of an existing dict that the traced program wrote to, None for others."""
    found: Any = frame.memory.memo.get(id(obj))
    return found if found is not None and (found.changes or found.cleared) else None


# --- Module's own methods, by function: fn(frame, args, kwargs) ---------------------------------------------------------


def initialise(frame: Frame, module: AbstractModule, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Does for real what the hook does, and starts the capture again with the module that this gives. Left to the hook, which breaks the
    graph, where sizes are open, random numbers were drawn or something was written before, which may tell of the module, and for lazy modules
    of others, which may look at more than sizes."""
    obj = module.obj
    if not isinstance(obj, LazyModuleMixin) or not obj.has_uninitialized_params():
        return
    own = type(obj).initialize_parameters.__module__.startswith("torch.nn.modules.")
    given = [like(value) for value in args]
    if not own or kwargs or None in given or frame.recording.effects.random or frame.mutations.entries:
        return
    obj._infer_parameters(obj, tuple(given))
    raise Again("initialised", detail=type(obj).__name__)


def like(value: Value) -> torch.Tensor | None:
    """A tensor of the same sizes without data; None where they are open."""
    if not isinstance(value, AbstractTensor) or not all(type(size) is int for size in value.example.shape):
        return None
    return torch.empty(value.example.shape, dtype=value.example.dtype, device="meta")


def setattr_row(frame: Frame, args: list[Any], kwargs: dict[str, Value]) -> Value:
    args[0].module_setattr(frame, force_plain(frame, args[1]), args[2])
    return NONE


def is_module(value: Value) -> bool:
    return issubclass(value.python_type(), Module)


def names_in(frame: Frame, module: Any, table: str) -> list[str]:
    """The keys of a table of an existing module, or of one that the program made."""
    if isinstance(module, ModuleValue):
        return module.names(frame, table)
    return [force_plain(frame, key) for key in module.field(frame, table).all_keys(frame)]


def entry_of(frame: Frame, module: Any, name: str) -> Any:
    """What a table of such a module holds under this name."""
    if isinstance(module, ModuleValue):
        return module.entry(frame, name)
    found = (module.field(frame, table).find_hashed(frame, name) for table in TABLES)
    return next(entry for entry in found if entry is not None)


class _Overridden(Exception):
    """A module below another one has a method of its own that the other one calls."""


def walk(
    frame: Frame, module: Value, prefix: str, once: bool, seen: set[int], calls: Collection[str] = ("named_modules",)
) -> Iterator[Any]:
    """(prefix, module value) of the module and all below; where `once`, those that are not in `seen`, which are added to it. Raises
    _Overridden where one below has its own of what eager calls there."""
    if id(module) in seen:
        return
    if once:
        seen.add(id(module))
    yield prefix, module
    for name in names_in(frame, module, "_modules"):
        child = entry_of(frame, module, name)
        if is_module(child):
            if is_overridden(frame, child, Module, calls):
                raise _Overridden
            yield from walk(frame, child, f"{prefix}.{name}" if prefix else name, once, seen, calls)


def option(frame: Frame, args: Sequence[Value], kwargs: dict[str, Value], position: int, name: str, default: str | bool) -> Any:
    """A plain argument by position or name."""
    if len(args) > position:
        return force_plain(frame, args[position])
    return force_plain(frame, kwargs[name]) if name in kwargs else default


NOT_BELOW: dict[str, Value] = {"recurse": ConstantValue(False)}


def members(table: str) -> Callable[..., list[tuple[str, Value]]]:
    """named_parameters, named_buffers: (name, tensor) pairs, each module and tensor once unless `remove_duplicate` says otherwise."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> list[tuple[str, Value]]:
        prefix = option(frame, args, kwargs, 1, "prefix", "")
        recurse = option(frame, args, kwargs, 2, "recurse", True)
        once = option(frame, args, kwargs, 3, "remove_duplicate", True)
        modules = walk(frame, args[0], prefix, once, set()) if recurse else [(prefix, args[0])]
        pairs, seen = [], set()
        for path, module in modules:
            for name in names_in(frame, module, table):
                tensor = entry_of(frame, module, name)
                if is_none(tensor) or (once and tensor in seen):
                    continue
                seen.add(tensor)
                pairs.append((f"{path}.{name}" if path else name, tensor))
        return pairs

    return handler


def as_pairs(producer: Callable[..., Any]) -> Handler:
    return lambda frame, args, kwargs: SequenceIterator(
        [TupleValue([ConstantValue(n), v]) for n, v in producer(frame, args, kwargs)]
    )


def as_values(producer: Callable[..., Any]) -> Handler:
    """parameters(), buffers(), modules(): `recurse` comes first there."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) > 1:
            kwargs = {**kwargs, "recurse": args[1]}
        return SequenceIterator([v for _, v in producer(frame, args[:1], kwargs)])

    return handler


def named_children(frame: Frame, args: list[Any], kwargs: dict[str, Value]) -> list[tuple[str, Value]]:
    module = args[0]
    pairs, seen = [], set()
    for name, child in zip(module.names(frame, "_modules"), module.children(frame)):
        if is_module(child) and id(child) not in seen:
            seen.add(id(child))
            pairs.append((name, child))
    return pairs


def named_modules(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> list[tuple[str, Value]]:
    if "memo" in kwargs or len(args) > 1:
        return frame.break_graph("call_unknown", "named_modules with a memo")
    prefix, once = option(frame, args, kwargs, 2, "prefix", ""), option(frame, args, kwargs, 3, "remove_duplicate", True)
    return list(walk(frame, args[0], prefix, once, set()))


def refused_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.break_graph("hook", "a hook or an entry of a module is registered in the traced program")


def hook_row(name: str) -> Handler:
    """The row of a method that puts a forward hook on a module."""
    return lambda frame, args, kwargs: put_on(frame, name, args, kwargs) or refused_row(frame, args, kwargs)


APPLIED = methods_called(Module._apply) | {"_apply"}
"""What Module.to calls on each module below."""


def to_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """module.to(dtype or device): the module where everything is so already, else its own code."""
    if not frame.modes.function_modes and all(w.is_constant() for w in (*args[1:], *kwargs.values())):
        wanted = [a.constant() for a in args[1:]], {k: v.constant() for k, v in kwargs.items()}
        modules = [module for _, module in walk(frame, args[0], "", True, set(), APPLIED)]
        tensors: list[Any] = [
            t for table in ("_parameters", "_buffers") for m in modules for _, t in members(table)(frame, [m], NOT_BELOW)
        ]
        if is_so([t.example for t in tensors], *wanted):
            return args[0]
    return call_own_code(frame, Module.to, args, kwargs)


def is_so(examples: list[FakeTensor], args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether Module.to with these arguments leaves the tensors as they are: dtypes are meant for those of floating point."""
    try:
        device, dtype, _, memory_format = arguments_of_to(*args, **kwargs)
    except (RuntimeError, TypeError):
        return False
    others = [e for e in examples if device not in (None, e.device) or dtype not in (None, e.dtype) and is_converted(e)]
    return memory_format is None and not others


def is_converted(example: FakeTensor) -> bool:
    return example.is_floating_point() or example.is_complex()


def module_handler(function: Any, row: Handler) -> Handler:
    """The row of a function of nn.Module; of modules that the traced program made, and where one below has a method of its own that the
    function calls, its own code is traced."""

    @functools.wraps(row)
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and isinstance(args[0], ModuleValue):
            try:
                return row(frame, args, kwargs)
            except _Overridden:
                pass
        return call_own_code(frame, function, args, kwargs)

    return handler


READS = {
    "named_parameters": as_pairs(members("_parameters")),
    "named_buffers": as_pairs(members("_buffers")),
    "parameters": as_values(members("_parameters")),
    "buffers": as_values(members("_buffers")),
    "named_children": as_pairs(named_children),
    "children": as_values(named_children),
    "named_modules": as_pairs(named_modules),
    "modules": as_values(named_modules),
}
"""Methods of modules whose rows read the tables themselves, where eager calls other methods."""
MODULE_ROWS = {
    Module.to: to_row,
    **{getattr(Module, name): row for name, row in READS.items()},
    **dict.fromkeys((module_call, wrapped_module_call), lambda frame, args, kwargs: args[0].call_impl(frame, args[1:], kwargs)),
    Module.__getattr__: lambda frame, args, kwargs: args[0].module_getattr(frame, force_plain(frame, args[1])),
    Module.__setattr__: setattr_row,
    **{getattr(Module, name): hook_row(name) for name in ROWS_OF_TABLES},
    Module.register_full_backward_hook: refused_row,
    Module.cuda: refused_row,
}
for _function, _row in MODULE_ROWS.items():
    call(_function, binds=False)(module_handler(_function, _row))  # their own code refuses what they do not take
