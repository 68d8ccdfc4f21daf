"""The five columns of OPDB.md: what is compared between eager and this package for one entry of op_db.

Each check gives a `Count`: how many cases were compared, how many were left out because eager itself refuses them, and
what differed. A result that depends on data agrees when the fake refuses with DataDependentError.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from single_op import Calls, check, is_random
from torch.utils._pytree import tree_flatten, tree_map
from tracework_primops import DataDependentError, FakeMode, FakeTensor

BACKWARD_DTYPE = torch.float32  # values of backward ops are compared in this dtype
EXAMPLES = 6  # failures kept per entry and column


@dataclass
class Count:
    """What a column found for one entry."""

    compared: int = 0
    refused: int = 0  # eager raises for its own sample (a missing kernel, a sparse layout)
    data: int = 0  # the result depends on data, and the fake says so
    failed: int = 0
    examples: list[str] = field(default_factory=list)

    def fail(self, where: str, what: str) -> None:
        self.failed += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{where}: {' '.join(what.split())[:400]}")


def dtypes_of(op: Any) -> list[torch.dtype]:
    """All dtypes that the entry lists for CPU, float32 first."""
    return sorted(op.supported_dtypes("cpu"), key=lambda d: (d is not torch.float32, str(d)))


def samples_of(op: Any, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
    """Sample inputs with a fixed seed; those made by code that eager refuses are missing."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from op.sample_inputs("cpu", dtype, requires_grad=requires_grad)


def spread(op: Any, dtype: torch.dtype, limit: int | None, requires_grad: bool = False) -> Iterator[tuple[int, Any]]:
    """The samples with their numbers; evenly spread ones when there are more than `limit`.

    Samples that cannot be made in this dtype are missing: their makers call kernels that eager does not have.
    """
    made: list[Any] = []
    with contextlib.suppress(NotImplementedError, RuntimeError):
        made.extend(samples_of(op, dtype, requires_grad))
    step = 1.0 if limit is None else max(len(made) / limit, 1.0)
    number = 0.0
    while int(number) < len(made):
        yield int(number), made[int(number)]
        number += step


def call(op: Any, sample: tuple[Any, Any, Any]) -> Any:
    torch.manual_seed(1)
    return op(sample[0], *sample[1], **sample[2])


def parts(sample: Any) -> tuple[Any, Any, Any]:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def is_strided(value: Any) -> bool:
    """Whether all tensors have strides and data; sparse ones, and samples on the meta device, are not compared."""
    return all(t.layout is torch.strided and t.device.type == "cpu" for t in tensors(value))


# metadata and aliasing ---------------------------------------------------------------------------


def describe(t: Any) -> tuple[Any, ...]:
    """Everything but data; the strides of an empty tensor and the offset count too."""
    return tuple(t.shape), tuple(t.stride()), t.dtype, t.device, t.storage_offset(), t.is_conj(), t.is_neg()


def memory(t: Any) -> int:
    return t.storage.id if isinstance(t, FakeTensor) else t.untyped_storage()._cdata


def aliasing(inputs: list[Any], outputs: list[Any]) -> list[tuple[Any, ...]]:
    """For each output: the first input it is, the first input and first output whose memory it shares."""
    found = []
    for out in outputs:
        same = next((i for i, x in enumerate(inputs) if x is out), None)
        shared = next((i for i, x in enumerate(inputs) if memory(x) == memory(out)), None)
        sibling = next(i for i, x in enumerate(outputs) if memory(x) == memory(out))
        found.append((same, shared, sibling))
    return found


def cloned(value: Any) -> Any:
    """Samples are used several times: ops may write to them, or hand them out."""
    memo: dict[int, torch.Tensor] = {}

    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
            return t
        key = memory(t)
        if key not in memo:
            memo[key] = t.detach().untyped_storage().clone()
        fresh = torch.empty(0, dtype=t.dtype).set_(memo[key], t.storage_offset(), t.shape, t.stride())
        if t.is_conj():
            fresh = torch._conj(fresh)
        return torch._neg_view(fresh) if t.is_neg() else fresh

    return tree_map(one, value)


def fakes_of(mode: FakeMode, value: Any) -> Any:
    return tree_map(lambda t: mode.from_real(t) if isinstance(t, torch.Tensor) else t, value)


def metadata(op: Any, function: Any, dtypes: list[torch.dtype], meta: Count, alias: Count, limit: int | None = None) -> None:
    """META against eager over all samples of all dtypes."""
    for dtype in dtypes:
        for number, sample in spread(op, dtype, limit):
            _metadata_of(f"{dtype} #{number}", function, parts(sample), meta, alias)


def _metadata_of(where: str, function: Any, sample: Any, meta: Count, alias: Count) -> None:
    if not is_strided(sample):
        meta.refused += 1
        return
    inputs = cloned(sample)
    mode = FakeMode()
    fakes = fakes_of(mode, inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = call(function, inputs)
    except Exception:  # whatever it is, eager does not accept its own sample
        meta.refused += 1
        return
    if not is_strided(expected):
        meta.refused += 1
        return
    meta.compared += 1
    try:
        with warnings.catch_warnings(), mode:
            warnings.simplefilter("ignore")
            got = call(function, fakes)
    except DataDependentError:
        meta.data += 1
        return
    except Exception as error:
        meta.fail(where, f"{type(error).__name__}: {error}")
        return
    found = metadata_difference(expected, got)
    if found:
        meta.fail(where, found)
        return
    alias.compared += 1
    wanted, have = aliasing(tensors(inputs), tensors(expected)), aliasing(tensors(fakes), tensors(got))
    if wanted != have:
        alias.fail(where, f"(input it is, input shared with, output shared with) {have} instead of {wanted}")


def metadata_difference(expected: Any, got: Any) -> str | None:
    """What differs between a real result and a fake one, None if nothing."""
    wanted, shape = tree_flatten(expected)
    have, structure = tree_flatten(got)
    if len(wanted) != len(have):
        return f"{structure} instead of {shape}"
    for w, h in zip(wanted, have):
        if isinstance(w, torch.Tensor) != isinstance(h, torch.Tensor):
            return f"a {type(h).__name__} instead of a {type(w).__name__}"
        if not isinstance(w, torch.Tensor):
            if w != h and not (w != w and h != h):
                return f"{h!r} instead of {w!r}"
        elif not isinstance(h, FakeTensor):
            return "a real tensor instead of a fake"
        elif describe(w) != describe(h):
            return f"{describe(h)} instead of {describe(w)}"
    return None


# values ------------------------------------------------------------------------------------------


def values(op: Any, dtypes: list[torch.dtype], count: Count, limit: int | None = None) -> None:
    """Every ATen call of the samples, equal signatures once, decomposed and run on prims."""
    for dtype in dtypes:
        grad = dtype is BACKWARD_DTYPE and op.supports_autograd
        for func, args, kwargs in _calls(op, dtype, grad, count, limit):
            try:
                kind, failure = check(func, args, kwargs, compare=not is_random(func))
            except (RuntimeError, NotImplementedError):  # eager does not take the copies: sparse ones, parts of another's memory
                count.refused += 1
                continue
            count.compared += 1
            count.data += kind == "extern"
            if failure:
                count.fail(f"{func} {dtype}", failure)


def _calls(op: Any, dtype: torch.dtype, grad: bool, count: Count, limit: int | None) -> Any:
    recorded = Calls()
    for _, sample in spread(op, dtype, limit, grad):
        _record(op.op, parts(sample), recorded, count)
    return recorded.calls.values()


def _record(function: Any, sample: Any, recorded: Calls, count: Count) -> None:
    if not is_strided(sample):
        count.refused += 1
        return
    try:
        with warnings.catch_warnings(), recorded:
            warnings.simplefilter("ignore")
            out = call(function, sample)
            results = [o for o in tensors(out) if o.requires_grad]
            if results:
                torch.autograd.backward(results, [torch.ones_like(o) for o in results])
    except Exception:  # what was recorded before eager refused is compared all the same
        count.refused += 1


# errors ------------------------------------------------------------------------------------------


def errors(op: Any, count: Count) -> None:
    """error_inputs: the exception type on fakes is eager's."""
    if op.error_inputs_func is None:
        return
    for number, case in enumerate(op.error_inputs("cpu")):
        sample = parts(case.sample_input)
        if not is_strided(sample):
            count.refused += 1
            continue
        inputs = cloned(sample)
        mode = FakeMode()
        fakes = fakes_of(mode, inputs)
        expected = _raised(op.op, inputs, contextlib.nullcontext())
        if expected is None:
            count.refused += 1
            continue
        got = _raised(op.op, fakes, mode)
        count.compared += 1
        if isinstance(got, DataDependentError):
            count.data += 1
        elif type(got) is not type(expected):
            text = "nothing" if got is None else f"{type(got).__name__} ({got})"
            count.fail(f"error #{number}", f"{text} instead of {type(expected).__name__}: {expected}")


def _raised(function: Any, sample: Any, context: Any) -> Exception | None:
    try:
        with warnings.catch_warnings(), context:
            warnings.simplefilter("ignore")
            call(function, sample)
    except Exception as error:
        return error
    return None
