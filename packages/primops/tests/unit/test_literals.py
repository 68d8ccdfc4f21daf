"""Plain data as text, and back."""

import dataclasses
import enum
from typing import Any, NamedTuple

import pytest
import torch
from tracework_primops import Condition, ParseError, SizeSpec, SymbolTable, TensorSpec, floordiv, symbol
from tracework_primops.literals import parse_literal, print_literal, read_symbols, symbol_lines, symbols_in

S = symbol("s0", 2)


class Kind(enum.Enum):
    A = "a"


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    parts: tuple[Any, ...] = ()
    kind: Kind = Kind.A
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


VALUES = (
    (
        1,
        -2,
        True,
        None,
        "x % y",
        b"z",
        1.5,
        float("inf"),
        float("-inf"),
        1 - 2j,
        ...,
        (),
        (1,),
        [],
        {"a": [2]},
        frozenset({2, 1}),
    ),
    (torch.float16, torch.device("cuda", 1), torch.channels_last, torch.strided, slice(1, None), torch.ops.aten.add.Tensor),
    (
        S,
        S * 4 + 1,
        floordiv(S + 3, 2),
        Condition.compare(">=", S, 4),
        SizeSpec(S),
        TensorSpec(torch.int8, torch.device("cpu"), (S, 2)),
    ),
    Row("a", (Pair(1, Kind.A), Row("b", facts={"c": S})), facts={"long " * 8: "text " * 8, "more " * 8: ("text " * 8,)}),
)


@pytest.mark.parametrize("value", VALUES, ids=["values", "torch", "sizes", "classes"])
def test_round_trip(value):
    text = print_literal(value)
    again = parse_literal(text, (Kind, Pair, Row), {"s0": S})
    assert again == value and print_literal(again) == text
    assert all(len(line) <= 130 for line in text.splitlines()) or not isinstance(value, Row)


def test_tensors():
    for tensor in (torch.arange(6.0).reshape(2, 3).t(), torch.empty(0, 3), torch.tensor(True), torch.tensor([1 + 2j])):
        again = parse_literal(print_literal(tensor), (), {})
        torch.testing.assert_close(again, tensor, rtol=0, atol=0)
        assert again.stride() == tensor.stride()


def test_what_is_no_plain_data():
    with pytest.raises(ParseError, match="no plain data"):
        print_literal([object()])
    for text in ("f(1)", "(1", "Row(1, 2, 3, 4, 5)"):
        with pytest.raises(ParseError, match="cannot read"):
            parse_literal(text, (Row,), {})


def test_symbols_and_conditions():
    table = SymbolTable()
    rows, columns = table.new(6), table.new(8)
    table.guard(Condition.compare("<", rows, columns), "model.py:3 of f")
    lines = symbol_lines(symbols_in({"a": (rows * 2, Row("b", (columns,)))}), table)
    names, again = read_symbols(lines, with_table=True)
    assert names == {"s0": rows, "s1": columns} and again.conditions == table.conditions and again.hint(columns) == 8
    with pytest.raises(ParseError, match="one name"):
        symbol_lines({symbol("s0", 2), symbol("s0", 3)}, None)
