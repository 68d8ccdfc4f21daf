"""What captured code takes for granted about data, and the plain run of the frame when it does not hold or the graph raises.

`if <data>: raise ...` is captured without the arm that raises. The condition becomes an output of the graph, looked at before any side
effect is replayed: when it asks for the other arm, the frame runs as plain Python from its start, and eager raises by itself, with its
own line, message and side effects. Where conditions fail often they break the graph instead. It is open only where the graph can be run
without a trace of it: no input written but small ones, which are put back (graph.undo), no state of others changed, and random numbers
drawn from a generator that is put back.

The same way out serves a graph that raises in the middle, with inputs of any size and device. Those that it had not written to by then
are as they were: all of them where the backend writes last (`__tracework_writes_last__`), and what the graph writes after the operators
that may raise where it runs as it is; their versions tell whether that was so. What is overwritten, as the caches of a model's layers,
the plain run writes again. Of others there are copies, which are made before each call.

There is no way out where an operator may do what its schema does not say, or draws from a generator of its own, and where an input gets a history before
an operator that may raise. Then the graph breaks between the write and that operator where a handler for that exception, or a manager, of the
program would see how far it came; elsewhere the exception of the graph is the program's, and effects before it are missing.
"""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx
from tracework_primops import GuardOnUnbackedError
from tracework_primops.broadcasting import is_dense
from tracework_primops.symbols import Condition

from .. import _torch
from ..bytecode.emit import CodeWriter
from ..bytecode.reload import local_name
from ..plan import Again, Learnt
from ..uncompiled import is_of_operators, report_uncompiled, run_again, run_with_handlers
from .constant_data import version_of_example
from .handlers import is_swallowed
from .raises import ANYTHING, Raised, exceptions_for_data
from .regions import copy_like, gradients_before_hooks, leaf, with_data
from .replaced import Replaced
from .sizes import holds
from .undo import (
    can_be_copied,
    can_be_put_back,
    can_run_again,
    contents_of,
    draw_again,
    is_written_the_same_again,
    put_back,
    states_of,
    storages_of,
)

if TYPE_CHECKING:
    from ..values.protocol.value import Frame

log = logging.getLogger("tracework.capture.checks")


@dataclass(frozen=True)
class DataCheck:
    """The truth of a node's single number that the captured code goes on with."""

    node: fx.Node
    expected: bool


# --- while tracing -----------------------------------------------------------------------------------------------------


def can_be_checked(frame: Any, tensor: Any) -> bool:
    """Whether the truth of this tensor may be left to a check: later finds may still take that back (see guarded_call). Where an except
    block goes on, raising may be the ordinary way.

    On other devices kernels run on before the check is seen, and one that gets what the check refuses may end the whole process.
    """
    example = tensor.example
    return (
        not frame.plan.learnt.unchecked
        and not frame.modes.transforms
        and example.device.type == "cpu"
        and type(example.numel()) is int
        and example.numel() == 1
        and not is_swallowed(frame, ANYTHING)
    )


def take_for_granted(frame: Any, tensor: Any, expected: bool) -> None:
    """Go on as if the tensor's truth were `expected`; the frame looks before it does anything that lasts."""
    node = tensor.node
    if tensor.example.dtype is not torch.bool:
        node = frame.graph.call_method(frame, "bool", (tensor,)).node
    frame.recording.checks.append(DataCheck(node, expected))


# --- what the graph does ------------------------------------------------------------------------------------------------


class Effects:
    """What the recorded operators do besides computing their results; `note` is called for each ATen operator."""

    def __init__(self) -> None:
        self.random = False
        self.hidden = ""
        self.statistics: set[Any] = set()  # storages that are written without a new version
        self.sparse_gradients = False  # those of a later backward
        self.raised: list[Raised] = []  # by operators that may raise, which depends on data
        self.writing = 0  # operators that write to what they are given
        self.drawing = 0  # operators that draw random numbers

    @contextmanager
    def normalizing(self) -> Iterator[set[Any]]:
        """The statistics that are written to inside."""
        before, self.statistics = self.statistics, set()
        inside = self.statistics
        try:
            yield inside
        finally:
            self.statistics = before | inside

    def note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """FakeMode.recorder"""
        kind = _KINDS.get(func)
        if kind is None:
            kind = _KINDS[func] = _kind_of(func)
        if kind is not _PURE:
            kind(self, func, dict(zip((a.name for a in func._schema.arguments), args)) | kwargs)
        if raised := exceptions_for_data(func, args, kwargs, out):
            self.raised.append(raised)
        self.writing += func._schema.is_mutable or kind is _normalizes


@dataclass(eq=False)
class Recording:
    """What the nodes of a graph do and stand for besides what they compute."""

    effects: Effects = field(default_factory=Effects)
    checks: list[DataCheck] = field(default_factory=list)
    """Conditions on data that are left to checks."""
    replaced: list[Replaced] = field(default_factory=list)
    """Tensors in whose place a selection gave copies."""
    selecting: bool = False
    """Whether an arm of a condition on data is traced (interp.select)."""


def _nothing(effects: Effects, func: Any, named: dict[str, Any]) -> None:
    """Writes that the schema tells of are seen by the versions of the storages."""


def _leave_to_eager_where(shared: Callable[[Any, Any], bool], effects: Effects, func: Any, named: dict[str, Any]) -> None:
    written = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    targets = [tensor for name in written for tensor in _tensors(named.get(name))]
    memory = {target.storage for target in targets}
    for name, value in named.items():
        for source in () if name in written else _tensors(value):
            if source.storage in memory and any(shared(target, source) for target in targets):
                raise RuntimeError(f"{func}: an input shares a part of the memory that is written to; clone the input")


def _tensors(value: Any) -> list[Any]:
    """Those of an argument: itself, or what a list holds."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


def _overlaps_in_part(target: Any, source: Any) -> bool:
    """Memory that is shared, but not element by element."""
    a, b = target.spec, source.spec
    return (a.sizes, a.strides, a.offset) != (b.sizes, b.strides, b.offset) and _overlaps(target, source)


def _overlaps(target: Any, source: Any) -> bool:
    """Memory that is shared; where sizes are open, dense memory that may be is taken to be, and other memory that is now."""
    a, b = target.spec, source.spec
    if target.storage is not source.storage:
        return False
    if (a.is_symbolic or b.is_symbolic) and is_dense(a.sizes, a.strides) and is_dense(b.sizes, b.strides):
        return not (_ends_before(target, source) or _ends_before(source, target))
    try:
        return np.shares_memory(_places(target), _places(source), max_work=1 << 16)  # type: ignore[arg-type]
    except (np.exceptions.TooHardError, GuardOnUnbackedError):
        return True


def _ends_before(first: Any, second: Any) -> bool:
    """Whether a tensor without gaps is known to have its last element before the first one of the other."""
    end = Condition.compare("<=", first.spec.offset + first.spec.numel(), second.spec.offset)
    return first.mode.table.is_true(end) is True


def _places(tensor: Any) -> Any:
    """An array over the bytes of a tensor's elements, counted from the start of its memory, at the sizes and strides of this call; nobody
    reads them."""
    spec = tensor.spec

    def now(size: Any) -> int:
        return size if type(size) is int else tensor.mode.table.hint(size)

    size = spec.dtype.itemsize
    interface = {
        "version": 3,
        "data": (_ANYWHERE + now(spec.offset) * size, False),
        "shape": tuple(map(now, spec.sizes)),
        "strides": tuple(now(stride) * size for stride in spec.strides),
        "typestr": f"|V{size}",
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


_ANYWHERE = 1 << 20

_writes_by_element = functools.partial(_leave_to_eager_where, _overlaps_in_part)
"""What writes elements of memory that another of its inputs shares in part is left to eager, which refuses it or gives what the order of its loops
gives."""
_writes_as_it_reads = functools.partial(_leave_to_eager_where, _overlaps)
"""The same of what computes an element from many: any memory that is shared counts."""


def _draws(effects: Effects, func: Any, named: dict[str, Any]) -> None:
    if any(a.name in _DRAWS_FOR and named.get(a.name, a.default_value) == 0 for a in func._schema.arguments):
        return
    effects.drawing += 1
    if not any(isinstance(given, torch.Generator) for given in named.values()):
        effects.random = True
    else:
        effects.hidden = f"{func} draws from a generator of its own"


_DRAWS_FOR = frozenset(("dropout_p", "training", "train"))
"""Arguments with which an operator draws nothing where they are 0 or False."""


def _normalizes(effects: Effects, func: Any, named: dict[str, Any]) -> None:
    if named.get("training", True):
        statistics = (named.get("running_mean"), named.get("running_var"))
        effects.statistics.update(tensor.storage for tensor in statistics if isinstance(tensor, torch.Tensor))


def _may_have_sparse_gradients(effects: Effects, func: Any, named: dict[str, Any]) -> None:
    asked = any(named.get(name) for name in _SPARSE)
    effects.sparse_gradients |= asked and torch.is_grad_enabled() and next(iter(named.values())).requires_grad


_SPARSE = frozenset(("sparse", "sparse_grad"))


def _unknown(effects: Effects, func: Any, named: dict[str, Any]) -> None:
    if not runs_again(func):
        effects.hidden = f"{func} may do what its schema does not say"


def runs_again(func: Any) -> bool:
    """Whether an operator that somebody registered can be called once more without a trace: its schema says that it writes to nothing, it
    talks to no other process, and is not made of a function of the program."""
    return not func._schema.is_mutable and not func.namespace.startswith(("tracework", "c10d", "_c10d", "symm_mem"))


_PURE = _nothing
_KINDS: dict[Any, Callable[..., None]] = {}


def _kind_of(func: Any) -> Callable[..., None]:
    if func.namespace not in ("aten", "prims"):
        return _unknown
    if torch.Tag.nondeterministic_seeded in func.tags:
        return _draws
    name = func._schema.name.partition("::")[2]
    if "batch_norm" in name and "backward" not in name:
        return _normalizes
    if func._schema.is_mutable:
        if torch.Tag.pointwise in func.tags or name in _BY_ELEMENT or name.startswith(("_foreach_", "_fused_")):
            return _writes_by_element
        return _PURE if name in _OF_SIZES else _writes_as_it_reads
    return _PURE if _SPARSE.isdisjoint(a.name for a in func._schema.arguments) else _may_have_sparse_gradients


_BY_ELEMENT = frozenset(("copy_", "masked_fill_"))
_OF_SIZES = frozenset(("set_", "resize_as_"))
"""What writes no element of the memory that it is given."""


def unused_that_may_raise(graph: fx.Graph, outputs: Iterable[fx.Node]) -> list[fx.Node]:
    """Nodes that may raise for some data, and that nothing depends on: a compiler leaves them out unless they are outputs."""
    needed: set[fx.Node] = set()
    memory: set[int] = set()
    ways = [*outputs, *(node for node in graph.nodes if node.op == "placeholder")]
    while ways:
        while ways:
            node = ways.pop()
            if node not in needed:
                needed.add(node)
                memory.update(id(storage) for storage in storages_of(node))
                ways.extend(node.all_input_nodes)
        writing = [node for node in graph.nodes if node.meta.get("may_write") and node not in needed]
        ways = [node for node in writing if any(id(storage) in memory for storage in storages_of(_result(node)))]
    unused = [node for node in graph.nodes if node.meta.get("may_raise") and node not in needed]
    return [n for n in map(_result, unused) if (found := storages_of(n)) and not any(id(storage) in memory for storage in found)]


def _result(node: fx.Node) -> Any:
    """What holds what a node computes."""
    return node.args[0] if node.target is operator.setitem else node


def isolate_node(frame: Any, node: fx.Node) -> None:
    """Breaks the graph where an operator that may raise and something that cannot be taken back, of which one is this node, meet in it."""
    if not is_plain_call(node) and node.target is not holds:
        frame.recording.effects.hidden = f"{node.target} is no operator"
    if frame.recording.effects.raised and (frame.recording.effects.hidden or written_inputs(frame)):
        frame.break_graph(
            "exception", "an operator may raise in a graph that cannot run again, and the program sees how far it came"
        )


def written_inputs(frame: Frame) -> list[fx.Node]:
    """The inputs whose memory the graph writes to."""
    return [node for node in frame.graph.graph.nodes if node.op == "placeholder" and is_written_to(frame, node)]


def is_written_to(frame: Frame, node: fx.Node) -> bool:
    """Whether the graph writes to the memory of this input."""
    example = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and bool(
        version_of_example(example) or example.storage in frame.recording.effects.statistics
    )


def written_again(frame: Frame, node: fx.Node) -> bool:
    """Whether a plain run of the frame gives this input what the graph gave it, or would have given it."""
    return node.meta["example_value"].storage not in frame.recording.effects.statistics and is_written_the_same_again(node)


AUTOCAST = frozenset({_torch.settings.enter_autocast, _torch.settings.exit_autocast})
_MODULES = frozenset(
    {"torch", "torch._C", "torch.functional", "torch.nn.functional", "torch._tensor", "torch._ops.aten", "_operator", "builtins"}
)


def fresh_seed() -> torch.Tensor:
    """torch.seed(), whose number is in a tensor."""
    return torch.tensor(torch.seed(), dtype=torch.uint64)


RANDOM_STATE = frozenset({torch.manual_seed, torch.get_rng_state, torch.set_rng_state, fresh_seed})
_AUTOGRAD = frozenset({torch.autograd.grad, gradients_before_hooks, copy_like, with_data, leaf})
"""Functions of operators; the history that gradients are asked of is the graph's own."""

_SETTERS = frozenset(write for _, write in _torch.settings.FLAGS.values())
"""Of what is as it was where the frame runs again."""


def only_sets(graph: fx.Graph) -> bool:
    """Whether a graph does nothing but set flags of torch."""
    return all(node.target in _SETTERS for node in graph.nodes if node.op not in ("placeholder", "output"))


def is_plain_call(node: fx.Node) -> bool:
    """Whether a node calls operators and no more."""
    target: Any = node.target
    if node.op != "call_function" or target in AUTOCAST or target is torch.autograd.graph.increment_version:
        return True
    if target in _AUTOGRAD or target in RANDOM_STATE or target in _SETTERS:
        return True
    if hasattr(target, "runs"):
        return all(is_plain_call(inner) for inner in target.runs.graph.nodes)
    if isinstance(target, _torch.operators.OpOverload):
        return target.namespace in ("aten", "prims") or runs_again(target)
    module = str(getattr(target, "__module__", None) or getattr(getattr(target, "__objclass__", None), "__module__", ""))
    return module in _MODULES or module.startswith("torch._C._")


def touched(graph: fx.Graph) -> set[Any]:
    """The memory that a graph which runs as it is may have written to when one of its operators raises."""
    written: set[Any] = set()
    found: set[Any] = set()
    for node in graph.nodes:
        if node.meta.get("may_write"):
            written.update(storage for given in node.all_input_nodes for storage in storages_of(given))
        if node.meta.get("may_raise"):
            found |= written
            written.clear()
    return found


def leaves_a_trace(frame: Frame, checked: bool, writes_last: bool = False) -> str:
    """Why the frame cannot simply run again after its graph ran, wholly (`checked`) or not; empty when it can."""
    builder = frame.graph
    if frame.recording.effects.hidden:
        return str(frame.recording.effects.hidden)
    if builder.draws and not (checked or frame.recording.effects.raised):
        return "numbers are drawn by Python"
    on_devices = False
    for node in builder.graph.nodes:
        if not is_plain_call(node) and node.target is not holds:
            return f"{node.target} is no operator"
        example = node.meta.get("example_value")
        on_devices = on_devices or isinstance(example, torch.Tensor) and example.device.type != "cpu"
    touches = set() if checked or writes_last else touched(builder.graph)
    for node in written_inputs(frame):
        if checked:
            lasts = not can_be_put_back(node)
        else:
            lasts = (
                not frame.recording.effects.raised or node.meta["example_value"].storage in touches and not can_be_copied(node)
            )
        if lasts:
            return f"{node.name} is written"
    return "kernels of another device" if on_devices and (checked or frame.recording.effects.random) else ""


# --- the text around the call -------------------------------------------------------------------------------------------


def check_conditions(frame: Frame, writer: CodeWriter) -> list[str]:
    """Texts that are true when the frame must run plainly; asks the graph for its conditions. Raises Again."""
    if not frame.recording.checks:
        return []
    why = leaves_a_trace(frame, checked=True)
    if not why and any(check.node not in frame.graph.graph.nodes for check in frame.recording.checks):
        why = "a condition inside of an inner graph"
    if why:
        log.info("conditions on data break the graph: %s", why)
        raise Again("unchecked", Learnt(unchecked=True), why)
    texts = {f"{'not ' if check.expected else ''}{writer.graph_output(check.node)}": None for check in frame.recording.checks}
    return list(texts)


def guarded_call(writer: CodeWriter, frame: Any, call: str, conditions: list[str], writes_last: bool) -> list[str]:
    """The statements that call the graph, and run the frame plainly when a check fails or the graph raises.

    The plain run gives the traceback the program's own line, and does what comes before it. writes_last: the graph writes to inputs
    after all that may raise. Raises Again.
    """
    lines = [f"__tw_out = {call}"]
    if not conditions and (why := leaves_a_trace(frame, False, writes_last)):
        if frame.recording.effects.raised and not frame.plan.learnt.isolated and must_be_isolated(frame):
            raise Again("isolated", Learnt(isolated=True), why)
        return lines
    restore = [f"{writer.const(_torch.modes.set_grad_enabled, 'set_grad')}({frame.modes.grad_at_start})"]
    for name, value in frame.modes.states_written.items():
        restore.append(f"{writer.const(_torch.settings.SETTINGS[name][1], f'set_{name}')}({writer.const(value, name)})")
    before = []
    if frame.recording.effects.random:
        before.append(f"__tw_random = {writer.const(torch.get_rng_state)}()")
        restore.append(f"{writer.const(torch.set_rng_state)}(__tw_random)")
    if frame.graph.draws:
        generators = [writer.source(binding.source) for binding in frame.graph.inputs if binding.role == "rng"]
        before.append(f"__tw_drawn = {writer.const(states_of)}([{', '.join(generators)}])")
        restore.append(f"{writer.const(draw_again)}(__tw_drawn)")
    if any(node.target in AUTOCAST for node in frame.graph.graph.nodes):
        before.append(f"__tw_autocast = {writer.const(_torch.settings.autocast_and_nesting)}()")
        restore.append(f"{writer.const(_torch.settings.restore_autocast)}(__tw_autocast)")
    written = written_inputs(frame)
    if written:
        whole, again, copied = [], [], []
        touches = set() if conditions or writes_last else touched(frame.graph.graph)
        for node in written:
            if not conditions and node.meta["example_value"].storage not in touches:
                whole.append(node)
            elif not conditions and not can_be_put_back(node) and written_again(frame, node):
                again.append(node)
            else:
                copied.append(node)
        tensors = (f"[{', '.join(writer.source(n.meta['binding'].source) for n in nodes)}]" for nodes in (copied, again, whole))
        before.append(f"__tw_kept = {writer.const(contents_of)}({', '.join(tensors)})")
        restore.append(f"{writer.const(put_back)}(__tw_kept)")
    function, arguments = plain_run(writer, frame)
    lines = ["try:", f"    __tw_out = {call}", "    __tw_failure = None"]
    lines += [
        f"except {writer.const(Exception)} as __tw_error:",
        f"    if not {writer.const(is_of_operators)}(__tw_error): raise",
    ]
    lines += ["    __tw_failure = __tw_error"]
    lines += ["if __tw_failure is not None:"]  # outside of the handler: no context
    if written:
        lines += [f"    if not {writer.const(can_run_again)}(__tw_kept):", "        raise __tw_failure"]
    lines += ["    " + line for line in restore]
    run = run_with_handlers if frame.graph.raises_in_block else functools.partial(run_again, frame.options.named(frame.code))
    lines += [f"    return {writer.const(run, 'run')}({writer.handed_over(['__tw_failure', function, *arguments])})"]
    if conditions:
        if not frame.options.fullgraph:  # where a break is an error
            restore = [f"{writer.const(frame.history.check_failed, 'check_failed')}()", *restore]
        lines += [
            f"if {' or '.join(conditions)}:",
            *("    " + line for line in restore),
            f"    return {function}({', '.join(arguments)})",
        ]
    return before + lines


def plainly_under_hooks(writer: CodeWriter, frame: Any) -> list[str]:
    """Statements that run a frame with side effects plainly where hooks see what autograd saves: one may raise in the middle of the graph,
    as a checkpoint around the call does when it needs no more of it, and what the program did before that is done then."""
    made = (node.meta.get("example_value") for node in frame.graph.graph.nodes if node.op not in ("placeholder", "output"))
    if not len(frame.mutations) or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in made):
        return []
    function, arguments = plain_run(writer, frame)
    why = "it has side effects, and hooks of saved tensors, as a checkpoint's, are around the call"
    report = functools.partial(report_uncompiled, why, frame.options.named(frame.code), "leave the hooks around the call")
    return [
        f"if {writer.const(_torch.autograd.any_saved_tensor_hooks, 'any_saved_tensor_hooks')}():",
        f"    {writer.const(report, 'report')}()",
        f"    return {function}({', '.join(arguments)})",
    ]


def must_be_isolated(frame: Frame) -> bool:
    """Whether the program would see that its frame does not run again: in a handler or a manager, or by a history that is there."""
    if frame.graph.raises_in_try:
        return True
    gets_history = (not node.meta["example_value"].is_leaf for node in written_inputs(frame))
    return not frame.options.fullgraph and any(gets_history)


_COLLECTING = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)


def plain_run(writer: CodeWriter, frame: Any) -> tuple[str, list[str]]:
    """Texts of the frame's function, which takes one argument for each argument slot and runs with the hook off, and of the arguments."""
    code: types.CodeType = frame.code
    slots = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in _COLLECTING)
    flags = code.co_flags & ~sum(_COLLECTING)
    plain = code.replace(co_argcount=slots, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
    disabled = frame.services.call_disabled
    if code.co_freevars:
        make, held = writer.const(types.FunctionType, "FunctionType"), writer.const(plain, "code")
        cells = "".join(f"(lambda: {writer.free_name(name)}).__closure__[0], " for name in code.co_freevars)
        function = f"{make}({held}, {writer.own_globals()}, None, None, ({cells}))"
    else:
        function = writer.function(plain, frame.globals, "plain")
    return f"{writer.const(disabled)}({function})", [local_name(name) for name in code.co_varnames[:slots]]
