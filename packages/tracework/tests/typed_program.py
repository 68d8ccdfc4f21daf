"""What a type checker knows of what is compiled: mypy reads this (mypy.ini), nothing runs it."""

from typing import assert_type

import tracework


def half(number: float, *, times: int = 1) -> float:
    return number / times


@tracework.compile
def bare(number: float) -> float:
    return number


@tracework.compile(fullgraph=True, dynamic=True, options={"cache": False})
def with_arguments(number: float) -> float:
    return number


@tracework.disable
def disabled(number: float) -> float:
    return number


@tracework.disable(recursive=False, reason="it prints")
def disabled_alone(number: float) -> float:
    return number


@tracework.compiler.allow_in_graph
def kept(number: float) -> float:
    return number


class Model:
    size: int = 3

    def __call__(self, number: float) -> float:
        return number


assert_type(tracework.compile(half)(1.0, times=2), float)
assert_type(tracework.compile(Model(), mode="reduce-overhead"), Model)
for function in (bare, with_arguments, disabled, disabled_alone, kept):
    assert_type(function(1.0), float)
