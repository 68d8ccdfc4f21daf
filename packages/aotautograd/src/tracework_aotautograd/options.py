"""Options of aotautograd: one frozen value, passed down."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AotOptions:
    """What can be chosen about tracing and splitting.

    partitioner: a name in PARTITIONERS. recompute_costly: whether transcendental pointwise ops may be recomputed in the
    backward ("auto": on accelerators only). fallback: whether a refused graph runs eagerly (True) or raises (False).
    eager_backward: compile the backward together with the forward instead of at the first backward call. memory_budget: how much of
    what the partitioner would keep it may keep, in bytes, from 0 (inputs and random numbers alone) to 1; the rest is computed again in
    the backward, cheap ops first.
    """

    partitioner: str = "min_cut"
    recompute_costly: str = "auto"
    fallback: bool = True
    eager_backward: bool = False
    memory_budget: float = 1.0
