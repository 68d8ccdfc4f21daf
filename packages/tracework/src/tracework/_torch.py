"""The only file of this package that touches private torch names; each is wrapped under our own name."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def release() -> str:
    """The release of torch, for a reader: nothing is decided by it."""
    return str(torch.__version__)


def gradient_buckets() -> tuple[int, int] | None:
    """Bytes of the first bucket of gradients, and of the others, of the DistributedDataParallel whose forward runs now."""
    active = torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()
    if active is None or active.process_group.size() == 1:
        return None
    others = active.bucket_bytes_cap
    return (min(_FIRST_BUCKET, others) if others == _DEFAULT_BUCKET else others), others


_FIRST_BUCKET, _DEFAULT_BUCKET = 1 << 20, 25 << 20
"""Where no size of buckets was asked for, the first one is smaller, to begin early."""


def with_warnings(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The same, where algorithms are to be deterministic or to warn: a warning of a kernel goes to Python's `warnings`, as it does from
    torch's functions. Operators that are called by name have it on stderr."""
    if not (torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()):
        return call

    def run(inputs: list[Any]) -> Any:
        if torch._C._len_torch_function_stack() or not torch._C._is_torch_function_enabled():
            return call(inputs)
        return torch.positive(_Call(call, inputs))  # type: ignore[arg-type]  # which answers as a tensor's class does

    return run


class _Call:
    """A call that runs inside of whatever function of torch it is given to."""

    def __init__(self, call: Callable[[list[Any]], Any], inputs: list[Any]) -> None:
        self.call, self.inputs = call, inputs

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        (made,) = args
        return made.call(made.inputs)


def negated_view(x: torch.Tensor) -> torch.Tensor:
    """A view that is negated when it is read, or no longer is."""
    return torch._neg_view(x)


def below_autograd() -> AbstractContextManager[object]:
    """Guard under which autograd does not see what is done to a tensor."""
    return torch._C._AutoDispatchBelowAutograd()


def below_views(
    gm: torch.fx.GraphModule, looked_at: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda operator: operator
) -> Callable[[list[Any]], Any]:
    """Runs a functional graph as torch's own functions run inside: neither do writes count versions nor do views know their base. The
    program's operators, which may use autograd inside, run as they do outside, by what `looked_at` makes of them."""
    outside = _Outside()
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    others = [n for n in graph.nodes if n.op == "call_function" and not _is_torchs_own(n.target)]
    for node in others:
        node.target = _run_in(looked_at(node.target), outside)
    run = torch.fx.GraphModule(gm, graph)

    def call(inputs: list[Any]) -> Any:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return run(*inputs)

    def call_with_others(inputs: list[Any]) -> Any:
        around = outside.keys
        outside.keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        try:
            return call(inputs)
        finally:
            outside.keys = around

    return call_with_others if others else call


def write(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Writes to a tensor as a kernel does: versions are counted by who asked for it."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return target.copy_(values)


class _Outside(threading.local):
    """What a thread's calls are dispatched to where it calls a graph: keys that are included and excluded."""

    keys: Any = None


def _run_in(target: Callable[..., Any], outside: _Outside) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ForceDispatchKeyGuard(*outside.keys):
            return target(*args, **kwargs)

    return run


def _is_torchs_own(target: Any) -> bool:
    """Whether a function of a functional graph is one of torch's operators, or takes an item or computes with sizes."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    return getattr(target, "__module__", None) in ("_operator", "math", "torch")


def is_operator(target: Any) -> bool:
    """Whether it is an operator of torch or of a library, with its overload."""
    return isinstance(target, torch._ops.OpOverload)


def operator_names(gm: torch.fx.GraphModule) -> frozenset[str]:
    """The operators of a graph, as "aten::mm"."""
    targets = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    return frozenset(target._schema.name for target in targets if isinstance(target, torch._ops.OpOverload))


def operator_of(node: torch.fx.Node) -> tuple[str, frozenset[int]]:
    """What a node of a functional graph calls, as "aten::mm", and which of its arguments it writes to."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return f"python::{getattr(node.target, '__name__', node.target)}", frozenset()
    schema = node.target._schema
    written = (n for n, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
    return schema.name, frozenset(written)


def tensors_made(node: torch.fx.Node) -> list[torch.Tensor]:
    """What a node of a functional graph makes, as far as it is memory of its own: a view is none."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and any(result.alias_info is not None for result in schema.returns):
        return []
    values = node.meta.get("val")
    return [v for v in (values if isinstance(values, (tuple, list)) else [values]) if isinstance(v, torch.Tensor)]


def run_below_views(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a functional graph, run as `below_views` runs it."""
    if not _is_torchs_own(target):
        return target

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return target(*args, **kwargs)

    return run


def functions_of_torch_compiler(names: Iterable[str]) -> list[Any]:
    """Those functions of torch.compiler that this release has."""
    return [getattr(torch.compiler, name) for name in names if hasattr(torch.compiler, name)]


def torchs_backends() -> Mapping[str, Callable[..., Any]]:
    """The backends that are registered with torch.compile; none where torch's compiler has not been imported, which this does not do."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    return dict(registry._COMPILER_FNS) if registry is not None else {}


def torchs_backend(name: str) -> Callable[..., Any] | None:
    """The one of this name, those included that torch imports when they are asked for."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    if registry is None:
        return None
    try:
        return registry.lookup_backend(name)
    except Exception:  # torch's InvalidBackend, or what the import of a backend's module raises
        return None


DEFAULT_BY_PLACE = frozenset({"error_on_custom_op_aliasing"})
"""Fields whose default in torch depends on where a program runs (under CI or not), and here does not: one that is put there counts."""


def set_by_program(module_name: str, names: Iterable[str]) -> dict[str, Any]:
    """Those of the fields of one of torch's config modules that the program has set to something else; none where the module has not been imported.

    A field that is another module's under a second name is left out, as reading it imports that module.
    """
    module = sys.modules.get(module_name)
    entries = getattr(module, "_config", None)
    if module is None or entries is None:
        return {}
    own = [name for name in names if name in entries and entries[name].alias is None]
    given = {name: _value(module, name) for name in own if not module._is_default(name)}
    # a patch that has ended leaves the default
    return {name: value for name, value in given.items() if name in DEFAULT_BY_PLACE or value != entries[name].default}


def _value(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def logs_that_are_on() -> list[str]:
    """Names of TORCH_LOGS that torch._logging.set_logs() has turned on, or that variable where torch was imported."""
    torchs = sys.modules["torch._logging._internal"]
    loggers = {name: set(qnames) for name, qnames in torchs.log_registry.log_alias_to_log_qnames.items()}
    chosen = {qname for qname, level in torchs.log_state.log_qname_to_level.items() if level <= logging.INFO}
    on = {name: qnames for name, qnames in loggers.items() if qnames <= chosen}
    whole = [name for name, qnames in on.items() if not any(qnames < others for others in on.values())]
    return [*sorted(torchs.log_state.artifact_names), *whole]


STANCE = ("torch._dynamo.eval_frame", "_stance")
"""The module, and the name in it, where torch.compile keeps the stance that torch.compiler.set_stance sets."""


def seeing_operators(seen: Callable[[Any, Any], None]) -> AbstractContextManager[object]:
    """Guard under which `seen` is told of each operator that is called below autograd, with what it gives."""
    return _Seeing(seen)


class _Seeing(TorchDispatchMode):
    def __init__(self, seen: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))  # the mode is off in here
        self._seen(func, result)
        return result
