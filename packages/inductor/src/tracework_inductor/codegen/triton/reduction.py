"""How reductions and scans along the last tile dimension are written: per lane, and across lanes."""

import dataclasses

import torch

from ...errors import InductorError
from .text_rules import HELD

__all__ = ["NO_POSITION", "SCAN_COMBINE", "ReductionText", "reduction_text", "scan_text"]

NO_POSITION = {"argmax": "9223372036854775807", "argmin": "9223372036854775807", "last_argmax": "-1", "last_argmin": "-1"}
"""Reduction that gives a position -> the position of lanes that have none: of equal values any other is taken."""
EXTREME_OF = {"argmax": "max", "argmin": "min", "last_argmax": "max", "last_argmin": "min"}
_FLOAT_LIMITS = {"max": 'float("-inf")', "min": 'float("inf")'}


@dataclasses.dataclass(frozen=True)
class ReductionText:
    """Texts for one kind and dtype.

    held: type of the accumulator; identity: its start; lane(a, v): one more value; across(a): the tile along
    dimension 1, with the dimension kept.
    """

    kind: str
    dtype: torch.dtype
    held: str
    identity: str

    def lane(self, a: str, v: str) -> str:
        """Accumulator a with value v."""
        floating = self.dtype.is_floating_point
        table = {
            "sum": f"{a} + {v}",
            "prod": f"{a} * {v}",
            "max": f"tl.maximum({a}, {v}, propagate_nan=tl.PropagateNan.ALL)" if floating else f"tl.maximum({a}, {v})",
            "min": f"tl.minimum({a}, {v}, propagate_nan=tl.PropagateNan.ALL)" if floating else f"tl.minimum({a}, {v})",
            "any": f"{a} | {v}",
            "all": f"{a} & {v}",
            "xor_sum": f"{a} ^ {v}",
            "logaddexp": f"_logaddexp({a}, {v})",
        }
        return table[self.kind]

    def across(self, a: str) -> str:
        """The accumulator's lanes combined."""
        floating = self.dtype.is_floating_point
        table = {
            "sum": f"tl.sum({a}, 1)[:, None].to({self.held})",
            "prod": f"tl.reduce({a}, 1, _prod)[:, None].to({self.held})",
            "max": f"tl.reduce({a}, 1, _max)[:, None]" if floating else f"tl.max({a}, 1)[:, None].to({self.held})",
            "min": f"tl.reduce({a}, 1, _min)[:, None]" if floating else f"tl.min({a}, 1)[:, None].to({self.held})",
            "any": f"(tl.max({a}.to(tl.int32), 1)[:, None] != 0)",
            "all": f"(tl.min({a}.to(tl.int32), 1)[:, None] != 0)",
            "xor_sum": f"tl.xor_sum({a}, 1)[:, None].to({self.held})",
            "logaddexp": f"tl.reduce({a}, 1, _logaddexp)[:, None]",
        }
        return table[self.kind]


def reduction_text(kind: str, dtype: torch.dtype) -> ReductionText:
    """Texts for a reduction of values of a dtype; argmax and argmin give those of their value."""
    value_kind = EXTREME_OF.get(kind, kind)
    if dtype == torch.bool:
        value_kind = {"max": "any", "min": "all", "prod": "all", "sum": "any"}.get(value_kind, value_kind)
    return ReductionText(value_kind, dtype, HELD[dtype], _identity(value_kind, dtype))


def _identity(kind: str, dtype: torch.dtype) -> str:
    if kind in _FLOAT_LIMITS:
        if dtype.is_floating_point:
            return _FLOAT_LIMITS[kind]
        limits = torch.iinfo(dtype)
        return str(limits.min if kind == "max" else limits.max)
    starts = {"sum": "0", "prod": "1", "any": "0", "all": "1", "xor_sum": "0", "logaddexp": 'float("-inf")'}
    if kind not in starts:
        raise InductorError(f"Triton kernel: no text for reduction {kind!r} (codegen/triton/reduction.py)")
    return starts[kind]


SCAN_COMBINE = {
    "sum": "_sum",
    "prod": "_prod",
    "logaddexp": "_logaddexp",
    "last_argmax": "_later_argmax",
    "last_argmin": "_later_argmin",
}
"""Scan -> the function of what has been found so far and of what comes next; elsewhere the operands may come in any order."""


def scan_text(kind: str, value: str) -> str:
    """The running reduction of a tile, or of a pair of them, along dimension 1."""
    if kind not in SCAN_COMBINE:
        raise InductorError(f"Triton kernel: no text for scan {kind!r} (codegen/triton/reduction.py)")
    return f"tl.associative_scan({value}, 1, {SCAN_COMBINE[kind]})"
