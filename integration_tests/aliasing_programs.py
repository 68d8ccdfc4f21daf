"""Inputs that lie in one memory, one of them written to or none: each layout with each program, compared with eager in all that can be seen.

`python -m aliasing_programs [BACKEND [WORD...]]` in integration_tests/ runs them all, or those whose name has one of the words, and counts.
"""

import collections
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import tracework

Tensors = list[torch.Tensor]


def row(count: int = 24) -> torch.Tensor:
    return torch.arange(1.0, count + 1) / 8


def numpy_parts() -> Tensors:
    array = np.arange(1.0, 9.0, dtype=np.float32)
    return [torch.from_numpy(array[:6]), torch.from_numpy(array[2:])]


def parameter_and_data() -> Tensors:
    parameter = torch.nn.Parameter(row(6))
    return [parameter, parameter.data]


def flat_parameters() -> Tensors:
    flat = row(12)
    return [torch.nn.Parameter(flat[:6]), torch.nn.Parameter(flat[6:])]


def frozen_and_part() -> Tensors:
    parameter = torch.nn.Parameter(row(6), requires_grad=False)
    return [parameter, parameter[2:]]


LEAF = row(6).requires_grad_()


def history_and_part() -> Tensors:
    x = LEAF * 1
    return [x, x[2:]]


def history_and_detached() -> Tensors:
    x = LEAF * 1
    return [x, x.detach()]


LAYOUTS: dict[str, Callable[[], Tensors]] = {
    "apart": lambda: [row(6), row(6) + 1],
    "same": lambda: [x := row(6), x],
    "alias": lambda: [x := row(6), x.view(6)],
    "detached": lambda: [x := row(6), x.detach()],
    "data": lambda: [x := row(6), x.data],
    "whole_and_row": lambda: [(cache := row().view(4, 6))[1], cache],
    "rows": lambda: list(row().view(4, 6)[:2]),
    "overlapping": lambda: [(x := row(8))[:6], x[2:]],
    "backwards": lambda: [(x := row(8))[2:], x[:6]],
    "columns": lambda: [(x := row(12).view(6, 2))[:, 0], x[:, 1]],
    "steps": lambda: [(x := row(12))[::2], x[1:7]],
    "turned": lambda: [x := row(12).view(3, 4), x.t()],
    "reshaped": lambda: [x := row(12).view(3, 4), x.view(12)],
    "windows": lambda: [x := row(6), x.as_strided((3, 2), (1, 1), 1)],
    "expanded": lambda: [(x := row(6)), x[2:3].expand(4)],
    "behind": lambda: [row()[3:9], row()[3:9]],
    "far_parts": lambda: [(x := row())[10:16], x[13:20]],
    "bits": lambda: [x := row(6), x.view(torch.int32)],
    "halves": lambda: [x := row(6), x.view(torch.float16)],
    "array": numpy_parts,
    "parameter_and_data": parameter_and_data,
    "flat_parameters": flat_parameters,
    "frozen_and_part": frozen_and_part,
    "history_and_part": history_and_part,
    "history_and_detached": history_and_detached,
}


def reads(x, y):
    return x.sum() + y.sum(), x * 2


def gives_views(x, y):
    return x[1:], y.view(y.shape), x


def writes_first(x, y):
    x.add_(1)
    return y * 2


def writes_second(x, y):
    y.mul_(2)
    return x + 1, y


def writes_between(x, y):
    before = y + 0
    x.add_(1)
    middle = y * 2
    y.sub_(3)
    return before, middle, x * 2


def writes_a_part(x, y):
    x[1:].mul_(3)
    y[0] = 7
    return x[0] + 1, y.sum()


def writes_through_a_view(x, y):
    view = x.view(-1) if x.is_contiguous() else x
    x.add_(1)
    y[-1:].zero_()
    return view, view * 2


def copies_over(x, y):
    x.copy_(y.flatten()[:1])
    return y + 1, x


def writes_without_history(x, y):
    with torch.no_grad():
        x.add_(1)
    return y.detach() * x.detach()


def writes_data(x, y):
    x.data.add_(1)
    return y * 1, x.data


def fills_by_index(x, y):
    y[torch.tensor([0])] = 5
    return x.sum() * 2, y


WEIGHT = torch.linspace(0.5, 1.5, 6).requires_grad_()


def trains_beside(x, y):
    with torch.no_grad():
        x.mul_(0.5)
    return (WEIGHT * y.detach().float().mean()).sum(), x.detach() + 1


def trains_on_parts(x, y):
    scale = x.detach().mean()
    with torch.no_grad():
        y.add_(1)
    return (WEIGHT * 2).exp() * scale + x.sum()


PROGRAMS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        reads,
        gives_views,
        writes_first,
        writes_second,
        writes_between,
        writes_a_part,
        writes_through_a_view,
        copies_over,
        writes_without_history,
        writes_data,
        fills_by_index,
        trains_beside,
        trains_on_parts,
    )
}

CASES = [f"{layout}-{program}" for layout in LAYOUTS for program in PROGRAMS]


class Seen(NamedTuple):
    """All that can be seen of a call."""

    values: list[Any]
    inputs: list[Any]
    versions: list[int]
    requires_grad: list[bool]
    places: list[Any]
    bases: list[Any]
    gradients: list[Any]


def _place(tensor: torch.Tensor, inputs: Tensors) -> Any:
    """Which inputs a result is, or else shares memory with, and how it lies there."""
    same = [i for i, x in enumerate(inputs) if x is tensor]
    memory = [i for i, x in enumerate(inputs) if x.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()]
    return same, memory, tensor.storage_offset() if memory else None, tensor.shape, tensor.stride(), tensor.dtype


def _base(tensor: torch.Tensor, inputs: Tensors) -> Any:
    base = tensor._base
    return base is not None and [i for i, x in enumerate(inputs) if x is base or x._base is base]


def seen(call: Callable[..., Any], inputs: Tensors) -> Seen | type[Exception]:
    """Of a call on these inputs, and of a backward of what it gives; the type of what it raises."""
    WEIGHT.grad = LEAF.grad = None
    before = [x._version for x in inputs]
    try:
        found = call(*inputs)
        results = list(found) if isinstance(found, tuple) else [found]
        values = [r.detach().clone() for r in results]
        versions = [x._version - n for x, n in zip(inputs, before, strict=True)]
        roots = [r.float().sum() for r in results if r.requires_grad and r.grad_fn is not None]
        if roots:
            torch.stack(roots).sum().backward()
    except (RuntimeError, IndexError, TypeError) as error:
        return RuntimeError if isinstance(error, RuntimeError) else type(error)
    gradients = [None if x.grad is None else x.grad.clone() for x in (*inputs, WEIGHT, LEAF) if x.is_leaf]
    after = [x.detach().clone() for x in inputs]
    places, bases = ([of(r, inputs) for r in results] for of in (_place, _base))
    return Seen(values, after, versions, [r.requires_grad for r in results], places, bases, gradients)


def compare(name: str, backend: str) -> list[str]:
    """Calls the program of a case compiled and plainly, twice; gives why anything ran uncompiled. Raises AssertionError."""
    layout, program = name.split("-")
    make, function = LAYOUTS[layout], PROGRAMS[program]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", tracework.UncompiledWarning)
        compiled = tracework.compile(function, backend=backend, fullgraph=True)
        for _ in range(2):
            expected, found = seen(function, make()), seen(compiled, make())
            if isinstance(expected, type) or isinstance(found, type):
                assert expected is found, (expected, found)
                continue
            for part in Seen._fields:
                mine, theirs = getattr(found, part), getattr(expected, part)
                if part in ("values", "inputs", "gradients"):
                    torch.testing.assert_close(mine, theirs, equal_nan=True)
                else:
                    assert mine == theirs, (part, mine, theirs)
    return [str(warning.message).partition("\n")[0] for warning in told if warning.category is tracework.UncompiledWarning]


def main(backend: str, words: list[str]) -> None:
    """Runs the cases and prints what differs, and why what ran uncompiled did."""
    counts: collections.Counter[str] = collections.Counter()
    for name in CASES:
        if words and not any(word in name for word in words):
            continue
        try:
            reasons = compare(name, backend)
            counts["uncompiled" if reasons else "compiled"] += 1
            if reasons:
                print(name, *reasons, sep="  ")
        except Exception as error:  # what is looked for
            counts["different"] += 1
            print(name, "DIFFERENT", type(error).__name__, str(error)[:300].replace("\n", " "), sep="  ")
        tracework.reset()
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "aot_eager", sys.argv[2:])
