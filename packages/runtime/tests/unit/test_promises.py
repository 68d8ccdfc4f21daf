"""The first call of an operator of the program is compared with its schema; later ones are calls of the operator itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tracework_runtime import promises
from tracework_runtime.errors import BrokenPromise
from tracework_runtime.promises import look_at_operators


def _behind_autograd(x: torch.Tensor) -> None:
    x.numpy()[...] = 7


CASES: dict[str, tuple[str, Callable[..., Any], str]] = {
    "writes": ("(Tensor x, Tensor y) -> Tensor", lambda x, y: (y.add_(1), x + y)[1], "argument 'y'"),
    "writes unseen": ("(Tensor x, Tensor y) -> Tensor", lambda x, y: (_behind_autograd(x), x + y)[1], "argument 'x'"),
    "writes to one of a list": ("(Tensor[] x, Tensor y) -> Tensor", lambda x, y: (x[1].zero_(), x[0] + y)[1], "argument 'x[1]'"),
    "gives an argument": ("(Tensor x, Tensor y) -> Tensor", lambda x, y: y.view(-1), "the memory of its argument 'y'"),
    "gives a result twice": (
        "(Tensor x, Tensor y) -> (Tensor, Tensor)",
        lambda x, y: (made := x + y, made[:1]),
        "number 1, with the memory of its result number 0",
    ),
    "honest": ("(Tensor x, Tensor y) -> Tensor", lambda x, y: x + y, ""),
    "honest writer": ("(Tensor(a!) x, Tensor y) -> Tensor", lambda x, y: (x.add_(1), x + y)[1], ""),
    "honest view": ("(Tensor(a) x, Tensor y) -> Tensor(a)", lambda x, y: x.view(-1), ""),
}


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    promises._told.clear()
    with torch.library._scoped_library("tracework_promises", "FRAGMENT") as made:
        yield made


def args_of(schema: str) -> list[Any]:
    x, y = torch.ones(2, 3), torch.full((2, 3), float("nan"))
    return [[x, x + 1] if schema.startswith("(Tensor[]") else x, y]


@pytest.mark.parametrize("how", ["off", "warn", "raise"])
@pytest.mark.parametrize("schema, function, lie", CASES.values(), ids=CASES)
def test_an_operator_and_its_argument_are_named(
    library: torch.library.Library, schema: str, function: Callable[..., Any], lie: str, how: str
) -> None:
    library.define(f"op{schema}")
    library.impl("op", function, "CPU")
    operator = torch.ops.tracework_promises.op.default
    namespace = {"f0": operator, "other": torch.ops.aten.sin.default}
    look_at_operators(namespace, how)
    args = args_of(schema)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if lie and how == "raise":
            with pytest.raises(BrokenPromise, match="tracework_promises::op") as caught:
                namespace["f0"](*args)
            assert lie in str(caught.value)
        else:
            namespace["f0"](*args)
            namespace["f0"](*args)
    found = [str(warning.message) for warning in told]
    assert len(found) == (1 if lie and how == "warn" else 0)
    assert all("tracework_promises::op" in text and lie in text for text in found)
    assert namespace == {"f0": operator, "other": torch.ops.aten.sin.default}
