"""Options of aotautograd: one frozen value, passed down."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AotOptions:
    """What can be chosen about tracing and splitting.

    partitioner: a name in PARTITIONERS. recompute_costly: whether transcendental pointwise ops may be recomputed in the
    backward ("auto": on accelerators only). fallback: whether a refused graph runs eagerly (True) or raises (False).
    eager_backward: compile the backward together with the forward instead of at the first backward call.
    """

    partitioner: str = "min_cut"
    recompute_costly: str = "auto"
    fallback: bool = True
    eager_backward: bool = False
