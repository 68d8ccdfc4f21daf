"""Index expressions and constants as Triton text."""

import pytest
import torch
from tracework_inductor.codegen.triton.printer import IndexPrinter
from tracework_inductor.codegen.triton.text_rules import constant_text
from tracework_inductor.ir.index import floordiv, maximum, mod, symbol

X, H, W = symbol("x", 0, None), symbol("h", 1, None), symbol("w", 1, None)


@pytest.mark.parametrize(
    "expression",
    [
        floordiv(X, floordiv(H + 2, 3) * floordiv(W + 2, 3)),
        mod(X, floordiv(H + 2, 3) * floordiv(W + 2, 3)),
        floordiv(X, H * W),
        maximum(X - 7, 0) * W + maximum(H, W) * 3,
        floordiv(X + 5, 2) * -3,
    ],
    ids=str,
)
def test_text_has_the_value_of_the_expression(expression):
    ranges = {X: (0, 10**6), H: (1, 10**3), W: (1, 10**3)}
    text = IndexPrinter({X: "x", H: "h", W: "w"}, ranges).text(expression).replace("tl.", "")
    values = {"x": 123, "h": 17, "w": 8}
    scope = {"maximum": max, "minimum": min, "_floordiv": lambda a, b: a // b, "_mod": lambda a, b: a % b}
    assert eval(text, scope, values) == eval(str(expression), {"max": max, "Max": max}, values)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-5, torch.uint8, "tl.full([], 251, tl.uint8)"),
        (300, torch.uint8, "tl.full([], 44, tl.uint8)"),
        (3.0, torch.uint16, "tl.full([], 3, tl.uint16)"),
        (-5, torch.int8, "tl.full([], -5, tl.int8)"),
        (float("-inf"), torch.float32, 'tl.full([], float("-inf"), tl.float32)'),
    ],
)
def test_constants(value, dtype, text):
    assert constant_text(value, dtype) == text
