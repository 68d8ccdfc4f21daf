"""case(f)(*args) and diff(f)(*args): what one call of a function is captured as, in cases, and where compiling it goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import torch

from . import config
from .api import compile
from .cases import Case, CaseError
from .errors import NotCallable
from .explanation import uncompiled_form
from .faults.envelope import compare
from .faults.find import Report
from .faults.find import diff as diff_of_case
from .faults.program import copied, same_random_numbers
from .options import build


class Reports(tuple[Report, ...]):
    """One report for each graph of a call; prints all. `captured`: how results differ when what is captured runs in the place of the function,
    uncompiled; None where they do not."""

    captured: str | None = None

    def __str__(self) -> str:
        lines = list(map(str, self))
        if self.captured is not None:
            lines.insert(
                0, f"at stage captured: {self.captured} when its graphs run uncompiled. Next: report it with the function."
            )
        return "\n".join(lines)


def case(fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., tuple[Case, ...]]:
    """Gives a function of fn's arguments that runs it once, uncompiled, and gives a Case for each graph that is captured.

    Args:
        options: those of compile() that the graphs are to be compiled with.

    A graph that has no text, or an input that no case holds, is told in a warning; where there is no other graph it is a CaseError.
    `save(path)` writes a case; `tracework diff`, `bisect` and `minify` work on it.
    """
    if not callable(fn):
        raise NotCallable(f"case() takes a function, method or nn.Module, not {type(fn).__name__}: {fn!r}.")
    chosen = build(None, options, config.current())

    def run(*args: Any, **kwargs: Any) -> tuple[Case, ...]:
        found: list[Case] = []
        lacking: list[CaseError] = []

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            place = str(gm.meta.get("place", ""))

            def call(*inputs: Any) -> Any:
                try:
                    found.append(
                        Case.of_captured(gm, copied(inputs), chosen, place=place)
                    )  # as they are before it writes to them
                except CaseError as error:
                    lacking.append(error)
                return gm(*inputs)

            return call

        compile(uncompiled_form(fn), backend=backend)(*args, **kwargs)
        if not found:
            raise lacking[0] if lacking else CaseError("no graph was captured: print(tracework.explain(f)(*args)) says why.")
        for error in lacking:
            warnings.warn(f"a graph has no case: {error}", stacklevel=2)
        return tuple(found)

    return run


@overload
def diff(fn: Case) -> Report: ...
@overload
def diff(fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Reports]: ...
def diff(fn: Any, *, options: Mapping[str, Any] | None = None) -> Any:
    """Compares each stage of compiling with eager and float64, and names the first stage, operator and line at fault.

    Of a Case it gives the Report; of a function a function of its arguments that gives one for each graph. It calls the function three times,
    with copies of the arguments for the first two.
    """
    if isinstance(fn, Case):
        return diff_of_case(fn)
    cases = case(fn, options=options)

    def run(*args: Any, **kwargs: Any) -> Reports:
        eagers = _results(uncompiled_form(fn), args, kwargs)
        captured = _results(compile(uncompiled_form(fn), backend="eager"), args, kwargs)
        reports = Reports(diff_of_case(each) for each in cases(*args, **kwargs))
        difference = compare(captured, eagers, None)
        reports.captured = None if difference is None else f"result {difference.place} is {difference.what}"
        return reports

    return run


def _results(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors and numbers in what a call gives, with arguments in memory of their own and the same random numbers each time."""
    with same_random_numbers():
        return list(_flat(fn(*_with_copies(args), **_with_copies(dict(kwargs)))))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, Mapping):
        yield from _flat(list(value.values()))
    elif isinstance(value, (torch.Tensor, int, float, bool)):
        yield value


def _with_copies(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return copied([value])[0] if value.is_leaf else value
    if type(value) in (tuple, list):
        return type(value)(map(_with_copies, value))
    return {k: _with_copies(v) for k, v in value.items()} if type(value) is dict else value
