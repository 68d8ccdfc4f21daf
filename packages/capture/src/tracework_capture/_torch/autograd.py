"""What autograd keeps and runs: nodes, hooks of what is saved, levels of forward-mode AD and transforms, checkpoints."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import checkpoint

FunctionBase: Any = torch._C._FunctionBase
SingleLevelFunction: Any = torch.autograd.function._SingleLevelFunction
call_of_checkpointed: Any = getattr(checkpoint, "_checkpoint_impl", None)
"""What functions that checkpoint() decorated call (torch 2.15); unlike checkpoint() torch does not mark it to run as plain Python."""
keeping_version = torch.autograd.grad_mode._unsafe_preserve_version_counter


StopRecomputation = checkpoint._StopRecomputationError
"""What the backward of a checkpoint ends its function with when all is there that was to be computed again."""


@contextlib.contextmanager
def plain_engine() -> Iterator[None]:
    """The engine runs backwards itself, also under torch's compiled autograd."""
    set_compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = set_compiler(None, False)
    try:
        yield
    finally:
        set_compiler(*before)


def nodes_behind(node: Any) -> list[Any]:
    """An autograd node and all that a backward goes on to from it."""
    found, waiting = dict[Any, None](), [node]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = None
            waiting += [following for following, _ in node.next_functions]
    return [*found]


def saved_by(node: Any) -> list[torch.Tensor]:
    """The tensors that an autograd node keeps for its formula. Raises RuntimeError where one was written to since."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        names = ["saved_tensors"]
    else:
        names = [name.removeprefix("_raw") for name in dir(node) if name.startswith("_raw_saved_")]
    fields = [getattr(node, name) for name in names]
    saved = [one for field in fields for one in (field if isinstance(field, (tuple, list)) else (field,))]
    return [one for one in saved if isinstance(one, torch.Tensor)]


def any_saved_tensor_hooks() -> bool:
    """Whether hooks see what autograd saves."""
    return packing_hook() is not None


def packing_hook() -> Any:
    """The innermost hook that packs what autograd saves, or None."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks[0] if hooks is not None else None


@contextlib.contextmanager
def saved_tensor_hooks_aside() -> Iterator[None]:
    """Saved-tensor hooks of the program see nothing of what is done inside."""
    if not any_saved_tensor_hooks():
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


FORWARD_AD = vars(torch.autograd.forward_ad)
"""Where the level of forward-mode AD stands, as _current_level; -1 outside."""


def dual_level() -> int:
    """The level of forward-mode AD; -1 outside."""
    level: int = FORWARD_AD["_current_level"]
    return level


def forward_ad_is_on() -> bool:
    """Whether tensors may carry tangents, of which a compiled graph would lose track."""
    return dual_level() >= 0


def leave_dual_levels(level: int) -> None:
    """Leaves the levels of forward-mode AD above this one."""
    while dual_level() > level:
        torch.autograd.forward_ad.exit_dual_level()


def leaving_dual_levels(function: Any) -> Any:
    """The function, which leaves no level of forward-mode AD entered when it raises."""
    return _leaving(function, dual_level, leave_dual_levels)


def _leaving(function: Any, depth: Callable[[], int], leave: Callable[[int], None]) -> Any:
    """The function, after which `leave` gets the depth that there was before."""

    def call(*args: Any) -> Any:
        before = depth()
        try:
            return function(*args)
        finally:
            leave(before)

    return call


class _SavedHooks(threading.local):
    def __init__(self) -> None:
        self.entered: list[Any] = []


_saved_hooks = _SavedHooks()


def enter_saved_hooks(manager: Any) -> Any:
    """Enters a manager of hooks of saved tensors, and gives it."""
    manager.__enter__()
    _saved_hooks.entered.append(manager)
    return manager


def leave_saved_hooks(manager: Any) -> None:
    """Leaves one that enter_saved_hooks entered."""
    _saved_hooks.entered.remove(manager)
    manager.__exit__(None, None, None)


def leaving_saved_hooks(function: Any) -> Any:
    """The function, which leaves no hooks of saved tensors entered when it raises."""

    def leave(count: int) -> None:
        while len(_saved_hooks.entered) > count:
            leave_saved_hooks(_saved_hooks.entered[-1])

    return _leaving(function, lambda: len(_saved_hooks.entered), leave)


is_of_a_transform = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor is what a function under a transform of torch.func sees, if the transform is over."""


def transform_level() -> Any:
    """The nesting of functorch transforms, None outside."""
    return torch._C._functorch.maybe_current_level()


@contextlib.contextmanager
def autograd_on() -> Iterator[None]:
    """Autograd follows what is computed, also inside of an operator's kernel, which runs below it."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded), torch.enable_grad():
        yield
