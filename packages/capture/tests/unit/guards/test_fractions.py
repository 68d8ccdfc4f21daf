"""Fractions that change: floats of them, and their ints, stay open."""

import math
from fractions import Fraction

import pytest
import torch
from tracework_capture import optimize

X = torch.arange(12.0).reshape(3, 4)
OPEN = {
    "float": lambda x, q: x * float(q),
    "parts": lambda x, q: x * q.numerator + q.denominator,
    "given back": lambda x, q: (x * float(q), q, [q], type(q), isinstance(q, Fraction)),
    "steps": lambda x, q: x + 0.5 * float(q) ** 2,
}
KNOWN = {
    "arithmetic": lambda x, q: (x * float(q * 2), q + 1, -q, abs(q), 1 / q, q == Fraction(1, 7), q > 1),
    "others": lambda x, q: (x * int(q * 3), round(q), math.floor(q), f"{q}", hash(q), {Fraction(1, 7): 1}.get(q), bool(q)),
    "tensors": lambda x, q: x + q,
}
ORDERS = {
    "both": [Fraction(i, i + 5) for i in (1, 2, 3, 4, 6)],
    "numerators": [Fraction(i, 7) for i in (1, 2, 3, 4, 5, 6, 8)],
    "signs": [Fraction(3, 7), Fraction(-2, 9), Fraction(0), Fraction(7), Fraction(-1), Fraction(10**30, 7), Fraction(1, 10**30)],
}


def outcome(function, q):
    try:
        return repr(function(X, q))
    except (TypeError, ArithmeticError) as error:
        return type(error)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("function", [*OPEN.values(), *KNOWN.values()], ids=[*OPEN, *KNOWN])
def test_as_plain_python(function, order):
    graphs = []
    compiled = optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], recompile_limit=20)(function)
    for q in order:
        assert outcome(compiled, q) == outcome(function, q)
    if function in OPEN.values() and order is not ORDERS["signs"]:
        assert len(graphs) == 2
    if function is OPEN["float"]:
        assert outcome(compiled, 0.5) == outcome(function, 0.5)


def test_numbers_of_other_kinds_in_a_fraction_are_asked_by_the_program_alone(caplog):
    class Asked(int):
        def __bool__(self):
            asked.append(self)
            return True

        def __eq__(self, other):
            raise AssertionError("compared")

    asked, q = [], Fraction(1, 3)
    q._numerator = Asked(2)
    compiled = optimize(lambda gm, inputs: gm.forward)(lambda x, q: (x + 1, bool(q)))
    for times in (1, 2, 3):
        assert compiled(X, q)[1] is True and len(asked) == times
    assert not [record for record in caplog.records if record.exc_info]
