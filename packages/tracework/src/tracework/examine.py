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
from .faults.calls import Calls, first_difference, users_place
from .faults.envelope import compare
from .faults.find import Report
from .faults.find import diff as diff_of_case
from .faults.program import copied, same_random_numbers
from .options import build


class Reports(tuple[Report, ...]):
    """One report for each graph of a call; prints all.

    captured: how results differ when what is captured runs in the place of the function, uncompiled, and at which call; None where they do
    not. whole: how they differ where all of it runs, though each graph agrees by itself, and what takes that away.
    """

    captured: str | None = None
    whole: str | None = None

    def __str__(self) -> str:
        lines = list(map(str, self))
        if self.captured is not None:
            lines.insert(0, f"at stage captured: {self.captured}. Next: report it with the function.")
        if self.whole is not None:
            lines.insert(0, f"each graph agrees by itself, and the whole does not: {self.whole}")
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
def diff(fn: Case, *, time: bool = False) -> Report: ...
@overload
def diff(fn: Callable[..., Any], *, options: Mapping[str, Any] | None = None, time: bool = False) -> Callable[..., Reports]: ...
def diff(fn: Any, *, options: Mapping[str, Any] | None = None, time: bool = False) -> Any:
    """Compares each stage of compiling with eager and float64, and names the first stage, operator and line at fault.

    Of a Case it gives the Report; of a function a function of its arguments that gives one for each graph. It calls the function several
    times, with copies of the arguments for all but one.

    Args:
        options: those of compile().
        time: tell what each kernel takes, too, beside eager's operators and its limit.
    """
    if isinstance(fn, Case):
        return diff_of_case(fn, time=time)
    cases = case(fn, options=options)

    def run(*args: Any, **kwargs: Any) -> Reports:
        eagerly = uncompiled_form(fn)
        eagers = _results(eagerly, args, kwargs)
        captured = _results(compile(eagerly, backend="eager"), args, kwargs)
        difference = compare(captured, eagers, None)
        at = _call_that_differs(eagerly, args, kwargs) if difference is not None else ""
        whole = None if difference is not None else _whole(eagerly, args, kwargs, eagers, dict(options or {}))
        reports = Reports(diff_of_case(each, time=time) for each in cases(*args, **kwargs))
        if difference is not None:
            first = f", first at {at}" if at else ""
            reports.captured = f"result {difference.place} is {difference.what} when its graphs run uncompiled{first}"
        elif all(report.failure is None for report in reports):
            reports.whole = whole
        return reports

    return run


def _call_that_differs(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The first operator that what is captured calls otherwise than eager, with the user's line."""
    eager, captured = Calls(), Calls()
    with eager.seen(users_place):
        _results(fn, args, kwargs)
    _results(compile(fn, backend=captured.backend), args, kwargs)
    return first_difference(captured.known, eager.known)


CALLS = 3
"""How often the whole is called: what is recorded, and what is kept from a call for the next, is wrong from the second or third on."""
SURELY = 100.0
"""How many times as far as is allowed results are off, where no float64 says how far eager's are, that are called wrong."""
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "what is stored of earlier compilations: with cache=False it is right. `tracework cache verify` looks at the entries": {
        "cache": False
    },
    "the recording as CUDA graphs: with cudagraphs=False it is right": {"cudagraphs": False},
}
"""What is in no case, and the options that are without it."""


def _whole(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], eagers: list[Any], options: dict[str, Any]
) -> str | None:
    """How results differ where everything runs: guards, stored entries, recordings. None where nothing does, and where eager itself gives
    other results at each call, or raises: the cases say what of the compiler does."""

    def differs(**changes: Any) -> str | None:
        compiled = compile(fn, options={**options, **changes})
        for number in range(CALLS):
            found = compare(_results(compiled, args, kwargs), eagers, None)
            if found is not None and found.times > SURELY:
                return f"at call {number + 1} result {found.place} is {found.what}"
        return None

    try:
        said = differs()
        if said is None or compare(_results(fn, args, kwargs), eagers, None) is not None:
            return None
        cause = next((what for what, changes in WITHOUT.items() if differs(**changes) is None), None)
    except Exception:
        return None
    return f"{said}{f'. At fault: {cause}' if cause else '. Next: report it with the function'}"


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
