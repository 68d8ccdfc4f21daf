"""Options of aotautograd: one frozen value, passed down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx


class Answers(Protocol):
    """Where solutions of the partitioner's problems are kept, by a hash of the problem; each call may come from another thread."""

    def get(self, key: str) -> bytes | None:
        """What was put, or None."""

    def put(self, key: str, answer: bytes) -> None:
        """Keeps an answer, if it can."""


class Rewrite(Protocol):
    """Changes a functional graph in place."""

    def __call__(self, graph: fx.Graph, /, *, is_inference: bool) -> object: ...


@dataclass(frozen=True)
class AotOptions:
    """What can be chosen about tracing and splitting.

    partitioner: a name in PARTITIONERS, or a function as it has them. recompute_costly: whether transcendental pointwise ops may be recomputed in the
    backward ("auto": on accelerators only). fallback: whether a refused graph runs eagerly (True) or raises (False).
    eager_backward: compile the backward together with the forward instead of at the first backward call. memory_budget: how much of
    what the partitioner would keep it may keep, in bytes, from 0 (inputs and random numbers alone) to 1; the rest is computed again in
    the backward, what takes least time by a prediction (`trade_off` shows it for a row of budgets). rewrite: called with each functional
    graph that was traced, forward and backward in one, before it is cut, and whether it is of an inference; changes it in place.
    answers: kept from run to run, so that a graph which was cut before is not cut again.
    addresses: tensors -> something that is equal where their memory begins at the same addresses, or RuntimeError; for whoever has a
    quicker way to ask than Tensor.data_ptr for each. attention: types of devices for which flex_attention
    becomes one operator (of tracework_primops), since what compiles the graphs has a kernel of it; on others all scores are computed.
    trained_attention: the same for attention that is written out and trained. channels_last: lay images out channels-last inside of a graph
    where convolutions on a GPU are predicted to gain by it, for compilers that give each value the strides of its meta["val"]; sums have
    other bits then. row_statistics: types of devices on which log-probabilities are computed from the largest element and the sum of each row,
    which alone are kept for the backward, since what compiles the graphs makes loops of such steps. gradients_first: add up the gradients of equal
    products before these are differentiated, which rounds in another order. backwards: where the recipe of a backward
    is kept when it is compiled, under the key that the recipe of the whole has for it. buckets: bytes of the first one, and of the others,
    where gradients are sent to other processes in such: the backward gives the gradients of one before it computes those of the next.
    text: gives a captured graph as text, for recipes that need it, and raises PrimError where there is none.
    """

    partitioner: str | Callable[..., Any] = "min_cut"
    recompute_costly: str = "auto"
    fallback: bool = True
    eager_backward: bool = False
    memory_budget: float = 1.0
    rewrite: Rewrite | None = None
    answers: Answers | None = None
    addresses: Callable[[Sequence[torch.Tensor]], Any] | None = None
    attention: frozenset[str] = frozenset()
    trained_attention: frozenset[str] = frozenset()
    channels_last: bool = False
    row_statistics: frozenset[str] = frozenset()
    gradients_first: bool = False
    backwards: Answers | None = None
    buckets: tuple[int, int] | None = None
    text: Callable[[fx.GraphModule], str] | None = None
