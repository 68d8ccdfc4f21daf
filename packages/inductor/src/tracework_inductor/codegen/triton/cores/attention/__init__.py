"""Attention whose scores are changed and masked by a loop body, without a score in memory.

A program takes a block of queries, walks over blocks of keys, and keeps a running maximum and sum. What the mask hides from a whole block
is not visited, and where it hides nothing it is not evaluated: bounds (reach.py) say so before the loop, or the counts and indices of a
BlockMask where bounds know too little. Where the body puts a low number in the place of scores, blocks of nothing else are not visited
either, unless a row turns out to have no score so far above the number that its exponential is 0. Where few blocks of queries would leave
most of a device idle, programs share the keys of one, and a second function merges their parts. Gradients are two more kernels that compute
the weights again from the sums and the largest scores of the forward: one walks over keys for a block of queries, one over queries for a
block of keys. Gradients of what the body reads are sums of those of the scores over queries, over keys, or over the scores of a distance
between the two, each by a kernel of that kind. Each result is summed up by one program, in order.

The node's facts: `body` over (batch, head, query, key), which reads the score as `local("score")` and defines "changed" and "keep" and, for
gradients, "slope" where the changed score is another; `scale`; `extents`, queries and keys of a block of the BlockMask; `zeroed`, of the forward:
whether a row that sees nothing is 0, and not NaN; `mask`, where blocks of a mask in memory were looked at: what hides scores
(ir/score_masks.py), and `whole`, elements of one of its blocks. The two tensors of these stand in the place of a BlockMask's then.
"""

from __future__ import annotations

from .....schedule.plan import CoreKernel
from ....renderer import RenderedKernel
from .backward import OfKeys, OfQueries
from .forward import Forward
from .kernel import Attention
from .sums import SumsOfDistances, SumsOfKeys, SumsOfQueries

__all__ = ["WRITERS", "render"]


def render(kernel: CoreKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    return WRITERS[kernel.node.core](kernel).rendered()


WRITERS: dict[str, type[Attention]] = {
    "attention": Forward,
    "attention_queries": OfQueries,
    "attention_keys": OfKeys,
    "attention_sums_of_queries": SumsOfQueries,
    "attention_sums_of_keys": SumsOfKeys,
    "attention_sums_of_distances": SumsOfDistances,
}
"""CoreNode.core -> what writes the kernel."""
