"""The operators that take functions, as graphs call them that torch.export made: with lists of tensors, and what else the functions read after
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...._torch import (
    associative_scan_op,
    cond_op,
    map_impl,
    scan_op,
    while_loop_op,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)
from ....polyfills.torch_functions import under_autocast, with_grad_mode
from ...plain.sequence import TupleValue
from ...protocol.calls import calls, traced
from ...protocol.value import Value
from .cond import cond_row
from .loops import With, associative_scan_row, map_row, scan_row, while_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...protocol.value import Frame


class OverLists(Value):
    """A function of items of lists, and of others after them, as one of the lists; it gives `carried` items and others as a pair, or all of
    them."""

    def __init__(self, function: Value, others: list[Value], carried: int | None = None) -> None:
        super().__init__(None)
        self.function, self.others, self.carried = function, others, carried

    def held(self) -> Iterable[Any]:
        return self.function, *self.others

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [item for arg in args for item in arg.unpack(frame)]
        found = self.function.call(frame, [*given, *self.others], kwargs).unpack(frame)
        if self.carried is None:
            return TupleValue(found)
        return TupleValue([TupleValue(found[: self.carried]), TupleValue(found[self.carried :])])


def while_operator_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)"""
    condition, body, carried, others = args
    functions = [With(function, others.unpack(frame)) for function in (condition, body)]
    return while_row(frame, [*functions, carried], kwargs)


def scan_operator_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """scan(combine_fn, init, xs, additional_inputs)"""
    function, init, xs, others = args
    started = TupleValue(init.unpack(frame))
    step = OverLists(function, others.unpack(frame), len(started.items))
    found = scan_row(frame, [step, started, TupleValue(xs.unpack(frame))], kwargs)
    return TupleValue([item for part in found.unpack(frame) for item in part.unpack(frame)])


def map_operator_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """map_impl(f, xs, pos_args)"""
    function, xs, others = args
    return map_row(frame, [OverLists(function, others.unpack(frame)), TupleValue(xs.unpack(frame))], kwargs)


calls(
    {
        associative_scan_op: associative_scan_row,
        cond_op: cond_row,
        map_impl: map_operator_row,
        scan_op: scan_operator_row,
        while_loop_op: while_operator_row,
        wrap_with_autocast: traced(under_autocast),
        wrap_with_set_grad_enabled: traced(with_grad_mode),
    }
)
