"""Guards are timed as they are checked, and one by one."""

import torch
import tracework_capture as capture

SCALE = 3


def test_costs_of_the_entry_that_serves():
    def inner(x):
        return x + SCALE

    def function(x, *more, flag=True):
        return inner(x) * len(more) if flag else x

    compiled = capture.optimize(lambda gm, inputs: gm.forward)(function)
    for count in (1, 2):
        compiled(torch.ones(3), *[1] * count)
    (cost,) = capture.guard_costs(lambda: function(torch.ones(3), 1))
    assert cost.function.endswith("function") and cost.line == function.__code__.co_firstlineno
    assert cost.guards > 2 and 0 < cost.us < 1000 and len(cost.dearest) == 3


def test_what_is_not_compiled_costs_nothing():
    assert capture.guard_costs(lambda: torch.ones(2)) == []
