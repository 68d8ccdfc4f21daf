"""The only file of this package that touches private torch names; each is wrapped under our own name."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.fx
from torch.fx._lazy_graph_module import _LazyGraphModule

OpOverload = torch._ops.OpOverload
to_copy = torch.ops.aten._to_copy.default
batch_norm_functional = torch.ops.aten._native_batch_norm_legit_functional.default


def sequence_number() -> int:
    """The number that the next autograd node made on this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())


def sequence_number_of(node: Any) -> int:
    """The number of an autograd node."""
    return int(node._sequence_nr())


def saved_by(node: Any) -> list[torch.Tensor]:
    """The tensors that an autograd node keeps for its formula. Raises RuntimeError where one was written to since."""
    kind: type = type(node)
    fields = [getattr(node, name) for name in _names_of_saved(kind)]
    saved = [one for field in fields for one in (field if isinstance(field, (tuple, list)) else (field,))]
    return [one for one in saved if isinstance(one, torch.Tensor)]


@cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    if issubclass(kind, torch.autograd.function.BackwardCFunction):
        return ("saved_tensors",)
    return tuple(name.removeprefix("_raw") for name in dir(kind) if name.startswith("_raw_saved_"))


def gradients(
    roots: Sequence[Any], wanted: Sequence[Any], arriving: Sequence[torch.Tensor], *, retain_graph: bool
) -> Sequence[torch.Tensor | None]:
    """torch.autograd.grad with `allow_unused`, where each gradient that arrives has the sizes of its root, which nobody need ask: to
    compare them torch imports sympy, for a fifth of a second."""
    run = torch.autograd.graph._engine_run_backward
    found: Sequence[torch.Tensor | None] = run(
        tuple(roots), tuple(arriving), retain_graph, False, tuple(wanted), allow_unreachable=True, accumulate_grad=False
    )
    return found


def edge_of(value: Any) -> tuple[Any, int]:
    """Where the history of a value begins: an autograd node and the number of one of its results."""
    return value.grad_fn, value.output_nr


def storage_of(tensor: torch.Tensor) -> int:
    """What is equal for tensors of one storage, wherever that has its memory, while one of them is alive."""
    number: int = tensor.untyped_storage()._cdata
    return number


def running_backward_sequence() -> int | None:
    """The sequence number of the autograd node being evaluated now, or None outside a backward."""
    node = torch._C._current_autograd_node()
    return None if node is None else sequence_number_of(node)


def below_autograd() -> Any:
    """Guard under which ops skip autograd, so that values can be computed without recording history."""
    return torch._C._AutoDispatchBelowAutograd()


def without_modes() -> Any:
    """A block in which operators compute, whatever listens to them outside."""
    return torch.utils._python_dispatch._disable_current_modes()


def without_autocast() -> Any:
    """Guard that turns autocast off for every device type."""
    return torch._C._DisableAutocast()


def autocast_is_on() -> bool:
    """Whether autocast is enabled for any device type."""
    return bool(torch._C._is_any_autocast_enabled())


@dataclass(frozen=True)
class Modes:
    """Whether gradients are recorded, and for each device type with autocast the dtype; whether autocast keeps its casts."""

    records: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    keeps_casts: bool

    @classmethod
    def now(cls) -> "Modes":
        """The modes of this thread."""
        casts = tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))
        return cls(torch.is_grad_enabled(), casts, torch.is_autocast_cache_enabled())

    @contextmanager
    def again(self) -> Iterator[None]:
        """A block in these modes."""
        with torch.set_grad_enabled(self.records), ExitStack() as stack:
            if autocast_is_on():
                stack.enter_context(without_autocast())
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=self.keeps_casts))
            yield


def turns_grad_on(node: torch.fx.Node) -> bool:
    """Whether a captured node switches gradients on."""
    return switches_grad_mode(node) and bool(node.args[0])


MODE_SWITCHES = frozenset(
    {
        torch._C._set_grad_enabled,
        torch.set_grad_enabled,
        torch.amp.autocast_mode._enter_autocast,
        torch.amp.autocast_mode._exit_autocast,
    }
)


def switches_modes(node: torch.fx.Node) -> bool:
    """Whether what follows a captured node runs in another mode than what is before it."""
    return node.target in MODE_SWITCHES


def switches_grad_mode(node: torch.fx.Node) -> bool:
    """Whether a captured node switches gradients on or off."""
    return node.target in (torch._C._set_grad_enabled, torch.set_grad_enabled)


def enters_autocast(node: torch.fx.Node) -> bool:
    """Whether a captured node begins a block of autocast; the node that ends it gets what this one gives."""
    return node.target is torch.amp.autocast_mode._enter_autocast


def leaves_autocast(node: torch.fx.Node) -> bool:
    """Whether a captured node ends a block of autocast."""
    return node.target is torch.amp.autocast_mode._exit_autocast


def as_in_losses(graph: torch.fx.Graph) -> AbstractContextManager[object]:
    """A block for the backward of a captured graph. Where that has a block of loss_parallel() it is one, too: eager's backward of what was
    computed there raises outside of one."""
    losses: Any = sys.modules.get("torch.distributed.tensor.parallel.loss")
    within = losses is not None and any(node.target is losses._disable_custom_loss_ops for node in graph.nodes)
    return losses.loss_parallel() if within else nullcontext()


def leave_modes(records: bool, entered: Iterable[Any]) -> None:
    """Ends blocks of autocast, the last one first, and sets grad mode."""
    for block in reversed([*entered]):
        torch.amp.autocast_mode._exit_autocast(block)
    torch._C._set_grad_enabled(records)


def dual_level_in(graph: torch.fx.Graph) -> torch.fx.Node | None:
    """The first node that enters a level of forward-mode AD."""
    return next((n for n in graph.nodes if n.target is torch.autograd.forward_ad.enter_dual_level), None)


def graph_is_kept() -> bool:
    """Whether the backward running now was asked to retain the graph."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def is_below_views() -> bool:
    """Whether an operator that a class is asked for comes from where autograd counts versions and knows views: `tensor.data` does not."""
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.ADInplaceOrView)


alias = torch.ops.aten.alias.default._op
"""A tensor -> a view of all of it, as autograd knows it."""


def set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    """Tells autograd how often the tensors were written to; those of inference mode have no versions."""
    pairs = [(t, version) for t, version in zip(tensors, versions, strict=True) if not t.is_inference()]
    _set_version_counters(tuple(t for t, _ in pairs), tuple(version for _, version in pairs))


_set_version_counters = torch._C._autograd._unsafe_set_version_counter
_increment_versions = torch._C._increment_version


def add_versions(args: Sequence[Any], written: Sequence[tuple[int, int]]) -> None:
    """As many new versions for the tensors at these places, one at a time: views of one tensor count together."""
    for slot, count in written:
        if not args[slot].is_inference():
            set_versions((args[slot],), (args[slot]._version + count,))


def counts_with(one: Any, other: Any) -> bool:
    """Whether a write to one tensor is a new version of the other, as of views of one tensor, also where neither is known to be a view."""
    if any(not isinstance(x, torch.Tensor) or x.is_inference() or x.layout is not torch.strided for x in (one, other)):
        return False
    before, version = one._version, other._version
    _increment_versions([other])
    together = one._version != before
    _set_version_counters((other,), (version,))
    return together


def counting_writes(call: Any, newer: Mapping[int, int]) -> Any:
    """`call(inputs)` after which the inputs in these slots have as many new versions, whatever the graph's kernels and copies count."""
    slots = tuple(newer)
    given = [slot for slot, count in newer.items() for _ in range(count)]
    once = given == list(slots)

    def run(inputs: list[Any]) -> Any:
        tensors = [inputs[i] for i in slots]
        written = tensors if once else [inputs[i] for i in given]
        try:
            versions = [t._version for t in tensors]
        except RuntimeError:  # those of inference mode have none
            tensors = [t for t in tensors if not t.is_inference()]
            versions = [t._version for t in tensors]
        found = call(inputs)
        _set_version_counters(tensors, versions)  # type: ignore[arg-type]  # lists do, and no tuples need be made at each call
        _increment_versions(written)  # one at a time: views of one tensor count together
        return found

    return run if slots else call


def direct_apply(function: Any, apart: Sequence[int]) -> Any:
    """`function.apply` without the walk over all arguments that only functorch's transforms need.

    The results at places `apart` get an autograd node of their own, since the engine calls hooks of a node's results for all
    of them, also of those that a backward has nothing to do with. lift() gives such a node to the tensor itself, no view of it.
    """
    direct = super(torch.autograd.Function, function).apply
    transformed = torch._C._are_functorch_transforms_active
    own_node = torch.ops.aten.lift.default

    def apply(*args: Any) -> Any:
        return function.apply(*args) if transformed() else direct(*args)

    def apply_apart(*args: Any) -> Any:
        if transformed():
            return function.apply(*args)
        results = direct(*args)
        for index in apart:
            own_node(results[index])
        return results

    return apply_apart if apart else apply


def any_batched(gradients: Sequence[Any]) -> bool:
    """Whether gradients are several at once, as those of `is_grads_batched` and of a backward under vmap: they have no memory of their
    own, which kernels could read."""
    functorch = torch._C._functorch
    return any(functorch.is_functorch_wrapped_tensor(g) or functorch.is_legacy_batchedtensor(g) for g in gradients)


@contextmanager
def outside_of_transforms() -> Iterator[None]:
    """Operators on plain tensors run as if no transform of torch.func were active, nor the older vmap that is_grads_batched runs under:
    they refuse to draw random numbers, whatever for."""
    functorch = torch._C._functorch
    levels = [functorch.pop_dynamic_layer_stack() for _ in range(functorch.get_dynamic_layer_stack_depth())]
    older = torch._C._vmapmode_increment_nesting()
    for _ in range(older):
        torch._C._vmapmode_decrement_nesting()
    try:
        yield
    finally:
        for _ in range(older - 1):
            torch._C._vmapmode_increment_nesting()
        for level in reversed(levels):
            functorch.push_dynamic_layer_stack(level)


def has_hooks(leaf: torch.Tensor) -> bool:
    """Whether the program's hooks run when a backward comes to a leaf."""
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)


with_own_node = torch.ops.aten.alias.default
"""The same tensor, with an autograd node that gives gradients on as they are."""


def graph_module(graph: torch.fx.Graph, root: Any = None) -> torch.fx.GraphModule:
    """A GraphModule whose Python text is made when it is first run or read: most graphs are compiled instead."""
    return _LazyGraphModule({} if root is None else root, graph)


def saved_tensor_hooks() -> tuple[Any, Any] | None:
    """The innermost saved-tensor hooks, None where there are none."""
    hooks: tuple[Any, Any] | None = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks


@contextmanager
def plain_saved_tensors() -> Iterator[None]:
    """Hides the user's saved-tensor hooks: they must see real tensors at run time, not fakes while tracing."""
    if saved_tensor_hooks() is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        yield


@contextmanager
def without_compiled_autograd() -> Iterator[None]:
    """The engine runs backwards itself, also under torch's compiled autograd."""
    set_compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = set_compiler(None, False)
    try:
        yield
    finally:
        set_compiler(*before)


@contextmanager
def tracing_state() -> Iterator[None]:
    """Grad mode restored at the end, no inference mode, one thread for the engine that looks for no NaN, autocast's cache left clean."""
    before = torch.is_grad_enabled()
    multithreading = torch.autograd.set_multithreading_enabled(False)
    anomalies = torch.autograd.set_detect_anomaly(False)
    with multithreading, anomalies, torch.inference_mode(False), plain_saved_tensors(), without_compiled_autograd():
        try:
            with torch.set_grad_enabled(before):
                yield
        finally:
            torch.set_grad_enabled(before)
            if autocast_is_on():
                torch.clear_autocast_cache()


def written_arguments(schema: Any) -> tuple[str, ...]:
    """Names of the arguments that an op of this schema writes to."""
    return tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)


def aliased_argument(schema: Any) -> int | None:
    """Index of the argument that the result is a view of, or None when the result is new memory."""
    if not any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return None
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and not argument.alias_info.is_write:
            return index
    return None


@cache
def draws(target: Any) -> bool:
    """Whether what a node calls takes numbers from a generator. What is given where another operator drew, as the backward of attention is,
    makes those numbers again and takes none."""
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return all(argument.name not in ("philox_seed", "rng_state") for argument in target._schema.arguments)


def untraced_by_torch_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which torch.compile neither inlines nor looks below: it runs what is compiled already. Compiled autograd traces calls of
    backwards."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # what it looks for
    function._torchdynamo_disable_msg = "a compiled backward"  # type: ignore[attr-defined]  # as above
    evaluator = torch._C._dynamo.eval_frame
    skip = evaluator._FrameAction.SKIP
    evaluator.set_code_exec_strategy(function.__code__, evaluator._FrameExecStrategy(skip, skip))
    return function


def call_apart_from_autocast(call: Callable[[list[Any]], Any], inputs: list[Any]) -> Any:
    """Calls what runs below autograd, whatever the program has turned on."""
    if not autocast_is_on():
        return call(inputs)
    with without_autocast():
        return call(inputs)


def apart_from_autocast(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The casts are in the graph already; library calls inside must not cast again."""

    def run(inputs: list[Any]) -> Any:
        with without_autocast():
            return call(inputs)

    return run
