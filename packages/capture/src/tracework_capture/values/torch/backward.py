"""torch.autograd.grad and backward inside the traced program: one node that asks the autograd engine, then what accumulating does.

Only gradients that stay inside the traced part are taken: where history reaches out of it, plain Python goes on. Without
retain_graph the history is freed afterwards; tensors of it that leave the traced part say so when they are differentiated again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import torch
from tracework_primops import FakeTensor
from tracework_primops.broadcasting import is_dense

from ... import _torch
from ...errors import BreakGraph
from ...graph.regions import copy_like, gradients_before_hooks
from ...sources import Attr, DictValueAt
from ..plain.mapping import DictValue
from ..plain.sequence import NONE
from ..protocol.calls import call, method
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import known_values
from ..protocol.value import Emitter, Frame, SymbolicRaise, Value, is_none
from .context import set_grad
from .hooks import DeferredHandle, EnterSavedHooks, HookCall, PassThrough, RegisterHook
from .leaves import is_new_leaf, leaf_of


def arguments(frame: Frame, args: list[Value], kwargs: dict[str, Value], names: list[str]) -> dict[str, Value | None]:
    """Values by parameter name, None for what was not given."""
    given = dict(zip(names, args)) | kwargs
    if not set(given) <= set(names):
        frame.break_graph("call_unknown", f"torch.autograd with {', '.join(sorted(set(given) - set(names)))}")
    return {n: None if n not in given or is_none(given[n]) else given[n] for n in names}


def tensors_of(frame: Frame, value: Any) -> list[Any]:
    """A tensor, or a sequence of them, as a list."""
    found = [value] if isinstance(value, AbstractTensor) else value.unpack(frame)
    if not all(isinstance(t, AbstractTensor) for t in found):
        frame.break_graph("call_unknown", "gradients of something that is no tensor")
    return found


def flag(frame: Frame, value: Value | None, default: bool) -> bool:
    """A plain argument."""
    return default if value is None else bool(force_plain(frame, value))


GRAD_NAMES = (
    "outputs inputs grad_outputs retain_graph create_graph only_inputs allow_unused is_grads_batched materialize_grads".split()
)


@call(torch.autograd.grad)
def grad_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.autograd.grad"""
    refuse_unmodelled_gradients(frame)
    given = arguments(frame, args, kwargs, GRAD_NAMES)
    if given["outputs"] is None or given["inputs"] is None:
        return frame.break_graph("call_unknown", "torch.autograd.grad")
    inputs = tensors_of(frame, given["inputs"])
    tensors_of(frame, given["outputs"])  # those in a tuple are known from here on, and where their history begins
    outside = histories_outside(frame)
    asked = [t for t in inputs if t.obj is not None]
    if outside and (len(outside) > 1 or asked not in ([], outside)):
        return frame.break_graph("call_unknown", "torch.autograd.grad through history from outside the captured part")
    if any(t.hooks or any(tables_of(frame, t)) for t in inputs) or any(v.retains_grad for v in distinct(frame)):
        return frame.break_graph("hook", "torch.autograd.grad of tensors with hooks")
    found = gradients(frame, given.pop("outputs"), given.pop("inputs"), given)
    if not keeps_graph(frame, given):
        history_is_freed(frame)
    return found


def refuse_unmodelled_gradients(frame: Frame) -> None:
    """Functions under a transform of torch.func are traced without it, and so without its gradients. Hooks that are not traced change
    Python objects, which is seen in plain Python alone. Gradients that are sparse have strides and memory on fakes."""
    if frame.modes.transforms:
        frame.break_graph("call_unknown", "the autograd engine under a transform of torch.func")
    if any(isinstance(node.target, (PassThrough, RegisterHook, EnterSavedHooks)) for node in frame.graph.graph.nodes):
        frame.break_graph("hook", "a backward in the function whose hooks it would run as they are")
    if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
        frame.break_graph(
            "call_unknown", "a backward in the function under detect_anomaly, which looks at the gradients of each operator"
        )
    if frame.recording.effects.sparse_gradients:
        frame.break_graph("tensor_layout", "a backward in the function that gives sparse gradients")


def gradients(
    frame: Frame,
    outputs: Any,
    inputs: Any,
    given: dict[str, Value | None],
    target: Callable[..., Any] = torch.autograd.grad,
) -> Value:
    """The node that asks the engine. Where an earlier backward used the history up, the graph ends before that one: eager's engine has
    accumulated some gradients when it comes to what was freed."""
    try:
        with _torch.autograd.plain_engine():
            return frame.graph.call(frame, target, (outputs, inputs), options(given))
    except BreakGraph as stop:
        if "second time" in stop.detail:
            stop.created_at = frame.graph.freed_at
        raise


def options(given: dict[str, Value | None]) -> dict[str, Value]:
    """Keyword arguments of the node."""
    return {name: value for name, value in given.items() if value is not None}


def keeps_graph(frame: Frame, given: dict[str, Value | None]) -> bool:
    return flag(frame, given["retain_graph"], flag(frame, given["create_graph"], False))


BACKWARD_NAMES = ["tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"]
METHOD_NAMES = ["tensors", "grad_tensors", "retain_graph", "create_graph", "inputs"]


@call(torch.autograd.backward)
def backward_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.autograd.backward"""
    return backward(frame, arguments(frame, args, kwargs, BACKWARD_NAMES))


@method(torch.Tensor, "backward")
def backward_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.backward"""
    kwargs = {"grad_tensors" if k == "gradient" else k: v for k, v in kwargs.items()}
    return backward(frame, arguments(frame, [self, *args], kwargs, METHOD_NAMES))


def backward(frame: Frame, given: dict[str, Value | None]) -> Value:
    """Gradients of the leaves, which they accumulate."""
    refuse_unmodelled_gradients(frame)
    if given.get("grad_variables") is not None:
        return frame.break_graph("call_unknown", "torch.autograd.backward with grad_variables")
    outputs = tensors_of(frame, given["tensors"])
    if histories_outside(frame):
        return frame.break_graph("call_unknown", "backward through history from outside the captured part")
    if given["inputs"] is None:
        refuse_wrapper_leaves(frame)
    leaves = tensors_of(frame, given["inputs"]) if given["inputs"] is not None else leaves_of(frame)
    retaining = [v for v in distinct(frame) if v.retains_grad and v.node is not None]
    if given["inputs"] is not None and retaining or any(not t.is_leaf() for t in leaves):
        return frame.break_graph("hook", "backward to a tensor that is no leaf")
    if any(
        isinstance(user.target, HookCall) for v in retaining for user in v.node.users
    ):  # the engine would give what was there before
        return frame.break_graph("hook", "backward to a tensor that keeps its gradient, which hooks of the graph change")
    if not leaves:
        return frame.break_graph("call_unknown", "backward without a tensor that requires a gradient")
    create = flag(frame, given["create_graph"], False)
    wanted = {"retain_graph": given["retain_graph"], "create_graph": given["create_graph"]}
    wanted |= {"grad_outputs": given["grad_tensors"], "allow_unused": ConstantValue(True)}
    leaves += retaining
    hooks = [hooks_of(frame, leaf) for leaf in leaves]
    is_hooked = any(before or after for before, after in hooks)
    saved = saved_behind(outputs) if is_hooked else {}
    order = order_of_arrival(frame, outputs, leaves) if is_hooked else []
    found = gradients(frame, outputs, leaves, wanted, gradients_before_hooks if is_hooked else torch.autograd.grad)
    arrived = list(zip(leaves, found.unpack(frame), hooks))
    sums = Sums(frame, [gradient for _, gradient, _ in arrived], create)
    if not is_hooked:
        for leaf, gradient, _ in arrived:
            sums.add(leaf, gradient)
    else:
        if any(isinstance(row[1], AbstractTensor) and place not in order for place, row in enumerate(arrived)):
            return frame.break_graph("hook", "a gradient that comes in no order that hooks could have")
        run_hooks(frame, [arrived[place] for place in order], sums, saved)
    if not keeps_graph(frame, given):
        history_is_freed(frame)
    return NONE


def leaves_of(frame: Frame) -> list[AbstractTensor]:
    """Every tensor that a gradient may accumulate into."""
    known = [v for v in distinct(frame) if v.node is not None and v.example.requires_grad]
    return [v for v in known if (is_new_leaf(v.example) if v.obj is None else v.is_leaf())]


def refuse_wrapper_leaves(frame: Frame) -> None:
    """What is taken apart has its gradient outside of the graph alone."""
    for value in frame.graph.wrapper_values.values():
        if value.obj is not None and value.obj.requires_grad:
            frame.break_graph("tensor_subclass", f"backward to {value.describe()}")


def distinct(frame: Frame) -> list[AbstractTensor]:
    return list({id(v): v for v in known_values(frame).values()}.values())


def histories_outside(frame: Frame) -> list[AbstractTensor]:
    """Inputs that are results of operations outside: history goes on behind them."""
    known = (*distinct(frame), *frame.graph.wrapper_values.values())
    return [v for v in known if v.obj is not None and v.obj.requires_grad and not leaf_of(frame, v)]


# --- hooks of leaves -----------------------------------------------------------------------------------------------------

TABLES = {"_backward_hooks": "register_hook", "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook"}
"""Where a leaf has its hooks, those that get the gradient first -> what registers them."""
Hooks: TypeAlias = "tuple[list[Value], list[Value]]"


def tables_of(frame: Frame, leaf: AbstractTensor) -> list[list[Value]]:
    """The hooks that a leaf had before, by table, in the order in which they run. What was looked at is guarded: the hooks, not the numbers
    of their handles."""
    found: list[list[Value]] = []
    for name in TABLES:
        table, held = getattr(leaf.obj, name, None), Attr(leaf.source, name)
        if table:
            frame.guard("LENGTH", held, len(table))
            found.append([frame.wrap(hook, DictValueAt(held, place)) for place, hook in enumerate(table.values())])
            continue
        found.append([])
        known = frame.wrap(table, held) if leaf.obj is not None else None
        if isinstance(known, DictValue):
            known.guard_keys(frame)
    return found


def hooks_of(frame: Frame, leaf: AbstractTensor) -> Hooks:
    """What a backward calls with the gradient of a leaf, and what with the leaf when it has accumulated it."""
    if any(not isinstance(hook, DeferredHandle) for hook in leaf.hooks):
        frame.break_graph("hook", "backward to a tensor that keeps its gradient")
    before, after = [
        held + [handle.hook for handle in leaf.hooks if handle.method == method]
        for held, method in zip(tables_of(frame, leaf), TABLES.values())
    ]
    return before, after


def order_of_arrival(frame: Frame, outputs: list[AbstractTensor], tensors: list[AbstractTensor]) -> list[int]:
    """Which of the tensors get gradients from a backward from here, in this order."""
    order: dict[int, None] = {}
    ends, places = [output.example for output in outputs], [tensor.example for tensor in tensors]
    handles = [place.register_hook(functools.partial(_note, order, n)) for n, place in enumerate(places)]
    try:
        with frame.graph.fake_mode, _torch.autograd.plain_engine():
            torch.autograd.grad(ends, places, [torch.empty_like(end) for end in ends], retain_graph=True, allow_unused=True)
    except RuntimeError:  # the backward itself says so
        return []
    finally:
        for handle in handles:
            handle.remove()
    return [*order]


def _note(order: dict[int, None], place: int, gradient: Any) -> None:
    order[place] = None


def saved_behind(outputs: list[AbstractTensor]) -> dict[int, tuple[FakeTensor, int]]:
    """What a backward from here reads, with the versions that it has."""
    nodes = [node for output in outputs for node in _torch.autograd.nodes_behind(output.example.grad_fn)]
    try:
        saved = [tensor for node in nodes for tensor in _torch.autograd.saved_by(node)]
    except RuntimeError:  # something was written to since, which the backward itself says
        return {}
    return {id(t): (t, t.storage.version) for t in saved if isinstance(t, FakeTensor)}


def run_hooks(
    frame: Frame, arrived: list[tuple[AbstractTensor, Value, Hooks]], sums: Sums, saved: dict[int, tuple[FakeTensor, int]]
) -> None:
    """Accumulates gradients one after the other, as the engine does, and calls the hooks of each leaf meanwhile, under grad mode as the engine
    has it. The graph has computed all gradients by then, so that hooks may write to what the engine needs no more alone."""
    before = torch.is_grad_enabled()
    set_grad(frame, sums.create)
    for place, (leaf, gradient, (first, last)) in enumerate(arrived):
        if not isinstance(gradient, AbstractTensor):
            frame.break_graph("hook", "a gradient that is None, of which hooks are told")
        try:
            for hook in first:
                gradient = changed_gradient(frame, hook, gradient)
            if first:
                sums.shared.add(id(gradient.example.storage))  # a hook may have kept it
            sums.add(leaf, gradient)
            for hook in last:
                if not is_none(hook.call(frame, [leaf], {})):
                    frame.break_graph("hook", "a hook that runs after accumulating and gives something")
        except SymbolicRaise as error:
            frame.break_graph("hook", f"a hook of a leaf that raises: {error}")
        if (first or last) and place + 1 < len(arrived):
            refuse_writes(frame, leaf, saved)
    set_grad(frame, before)


def changed_gradient(frame: Frame, hook: Value, gradient: Any) -> Any:
    """What a hook makes of a gradient."""
    found = hook.call(frame, [gradient], {})
    if is_none(found):
        return gradient
    kinds = [(t.example.shape, t.example.dtype, t.example.device) for t in (found, gradient) if isinstance(t, AbstractTensor)]
    if len(kinds) < 2 or kinds[0] != kinds[1]:
        return frame.break_graph("hook", "a hook that gives another kind of tensor than the gradient")
    return found


def refuse_writes(frame: Frame, leaf: AbstractTensor, saved: dict[int, tuple[FakeTensor, int]]) -> None:
    """Breaks the graph where hooks wrote to what eager's engine may yet read; what has the leaf's gradient has been read."""
    for key, (tensor, version) in saved.items():
        if tensor.storage.version != version:
            if not tensor.requires_grad or tensor.storage is not leaf.example.storage:
                frame.break_graph("hook", "a hook that writes to what the backward needs")
            saved[key] = tensor, tensor.storage.version


# --- accumulating --------------------------------------------------------------------------------------------------------


class Sums:
    """How leaves get the gradients of one backward; `create`: a graph of them is made."""

    def __init__(self, frame: Frame, gradients: list[Value], create: bool) -> None:
        self.frame, self.create = frame, create
        self.shared = {id(v.example.storage) for v in distinct(frame) if not any(v is g for g in gradients)}

    def add(self, leaf: AbstractTensor, gradient: Value) -> None:
        """leaf.grad = gradient, or leaf.grad += gradient; a gradient that is another's memory too, or laid out in another way than the leaf
        (in C order, where that has gaps), is copied.

        What retain_grad keeps of a tensor that is no leaf is dense, and a second gradient makes a new sum.
        """
        frame, create = self.frame, self.create
        if not isinstance(gradient, AbstractTensor):
            return
        before, kept = leaf.getattr(frame, "grad"), not leaf.is_leaf()
        if isinstance(before, AbstractTensor):
            operation = operator.add if create or kept else operator.iadd
            after = frame.graph.call(frame, operation, (before, gradient))
            leaf.setattr(frame, "grad", after if create or kept else before)
            return
        storage = id(gradient.example.storage)
        as_leaf = not kept and is_dense(leaf.example.spec.sizes, leaf.example.spec.strides)
        alike = laid_out_alike(gradient.example, leaf.example) if as_leaf else gradient.example.is_contiguous()
        if (storage in self.shared or not alike) and not as_leaf and (kept or not create):
            options = {"memory_format": ConstantValue(torch.contiguous_format)}
            gradient = frame.graph.call_method(frame, "clone", (gradient,), options)
        elif (storage in self.shared or not alike) and as_leaf and not create:
            gradient = frame.graph.call(frame, copy_like, (gradient, leaf))
        elif as_leaf and not create and gradient.example._is_view():
            gradient = frame.graph.call_method(frame, "detach", (gradient,))  # as autograd keeps it: a view refuses detach_()
        self.shared.add(storage)
        leaf.setattr(frame, "grad", gradient)


def laid_out_alike(gradient: FakeTensor, leaf: FakeTensor) -> bool:
    """Whether all strides are equal that lead anywhere."""
    return all(
        a == b or type(size) is int and size == 1 and a != 0 for size, a, b in zip(leaf.shape, gradient.stride(), leaf.stride())
    )


# --- freed history -------------------------------------------------------------------------------------------------------


def history_is_freed(frame: Frame) -> None:
    """Tensors known by now, and what is computed from them later, may belong to a graph that was freed."""
    if frame.graph.freed_at < 0:
        frame.graph.freed_at = frame.progress.step
    known = frame.graph.history_freed = known_values(frame)
    for value in known.values():
        value.may_be_freed = known


class _Freed(torch.autograd.Function):
    """Gives its tensor, with a history that is freed."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, anchor: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)  # a view, which it would be otherwise, could not be written to
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> NoReturn:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
            "freed): the compiled function ran a backward over it already; pass retain_graph=True to that one"
        )


def with_freed_history(tensor: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
    """A result whose history a backward inside of the compiled function used up; gradients of its leaves cannot be computed."""
    if tensor._is_view():
        tensor = tensor.detach()  # graphs may run without grad mode, and the history of a view that was made so cannot be set
    with torch.enable_grad(), _torch.autograd.keeping_version(tensor):
        result: torch.Tensor = _Freed.apply(tensor, torch.zeros((), requires_grad=True), *leaves)
        return result


def view_with_freed_history(base: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The view of a result with a freed history that shows what the tensor shows."""
    with torch.enable_grad():
        return base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def is_freed(example: FakeTensor) -> bool:
    """Whether a backward from this fake fails because the history was freed."""
    leaves = leaves_below(example.grad_fn)
    if not leaves:
        return False
    try:
        with example.mode:
            torch.autograd.grad(example, leaves, torch.empty_like(example), retain_graph=True)
    except RuntimeError as error:
        return "second time" in str(error)
    return False


def leaves_below(grad_fn: Any) -> list[FakeTensor]:
    """The leaves that a backward from here reaches."""
    waiting, seen, leaves = [grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        waiting.extend(following for following, _ in node.next_functions)
    return leaves


def reload_freed(value: AbstractTensor, emit: Emitter) -> str:
    """Expression of a tensor whose history was freed."""
    graph = value.node.graph
    node = graph.call_method("detach", (value.node,))
    with torch.no_grad():
        node.meta["example_value"] = node.meta["val"] = value.example.detach()
    leaves = [value.may_be_freed[id(leaf)] for leaf in leaves_below(value.example.grad_fn) if id(leaf) in value.may_be_freed]
    base = value.may_be_freed.get(id(value.example._base)) if value.example._is_view() else None
    if base is not None:
        return f"{emit.const(view_with_freed_history, 'view_with_freed_history')}({emit.load(base)}, {emit.graph_output(node)})"
    texts = [emit.graph_output(node), *(emit.load(leaf) for leaf in leaves)]
    return f"{emit.const(with_freed_history, 'with_freed_history')}({', '.join(texts)})"


# --- .grad ---------------------------------------------------------------------------------------------------------------


def write_grad(frame: Frame, tensor: AbstractTensor, value: Value) -> None:
    """tensor.grad = value"""
    if isinstance(value, AbstractTensor):
        new, old = value.example, tensor.example
        if (tuple(new.shape), new.dtype, new.device) != (tuple(old.shape), old.dtype, old.device):
            frame.break_graph("side_effect_unknown", "assignment of another kind of tensor to grad")
    elif not is_none(value):
        frame.break_graph("side_effect_unknown", "assignment to grad of a tensor")
    tensor.attributes["grad"] = value
    tensor.log_attribute(frame, "grad", value)
