"""case(f)(*args) and diff(f)(*args): what one call of a function is captured as, in cases, and where compiling it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

import torch

from . import config
from .api import compile
from .cases import Case, CaseError
from .errors import NotCallable
from .explanation import uncompiled_form
from .faults.find import Report
from .faults.find import diff as diff_of_case
from .options import build


class Reports(tuple[Report, ...]):
    """One report for each graph of a call; prints all."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def case(fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., tuple[Case, ...]]:
    """Gives a function of fn's arguments that runs it once, uncompiled, and gives a Case for each graph that is captured.

    Args:
        options: those of compile() that the graphs are to be compiled with.

    `save(path)` writes a case; `tracework diff`, `bisect` and `minify` work on it.
    """
    if not callable(fn):
        raise NotCallable(f"case() takes a function, method or nn.Module, not {type(fn).__name__}: {fn!r}.")
    chosen = build(None, options, config.current())

    def run(*args: Any, **kwargs: Any) -> tuple[Case, ...]:
        found: list[Case] = []

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            place = str(gm.meta.get("place", ""))

            def call(*inputs: Any) -> Any:
                found.append(Case.of_captured(gm, _kept(inputs), chosen, place=place))
                return gm(*inputs)

            return call

        compile(uncompiled_form(fn), backend=backend)(*args, **kwargs)
        if not found:
            raise CaseError("no graph was captured: print(tracework.explain(f)(*args)) says why.")
        return tuple(found)

    return run


def _kept(inputs: tuple[Any, ...]) -> list[Any]:
    """As they are before the graph runs, which may write to them."""
    from .faults.program import copied

    return copied(inputs)


@overload
def diff(fn: Case) -> Report: ...
@overload
def diff(fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Reports]: ...
def diff(fn: Any, *, options: Mapping[str, Any] | None = None) -> Any:
    """Compares each stage of compiling with eager and float64, and names the first stage, operator and line at fault.

    Of a Case it gives the Report; of a function a function of its arguments that gives one for each graph.
    """
    if isinstance(fn, Case):
        return diff_of_case(fn)
    cases = case(fn, options=options)
    return lambda *args, **kwargs: Reports(diff_of_case(each) for each in cases(*args, **kwargs))
