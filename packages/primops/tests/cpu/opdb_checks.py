"""The columns of OPDB.md: what is compared between eager and this package for one entry of op_db.

Each check gives a `Count`: how many cases were compared, how many were left out because eager itself refuses them, and
what differed. A result that depends on data agrees when the fake refuses with DataDependentError.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from single_op import Calls, OnPrims, check, is_random, leaves, mapped
from torch.testing._internal.common_utils import set_rng_seed
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
    set_rng_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from op.sample_inputs("cpu", dtype, requires_grad=requires_grad, set_seed=False)


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
    torch.default_generator.manual_seed(1)  # torch.manual_seed also keeps a traceback for each device, in milliseconds
    return op(sample[0], *sample[1], **sample[2])


def parts(sample: Any) -> tuple[Any, Any, Any]:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in leaves(value) if isinstance(t, torch.Tensor)]


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

    return mapped(one, value)


def fakes_of(mode: FakeMode, value: Any) -> Any:
    return mapped(lambda t: mode.from_real(t) if isinstance(t, torch.Tensor) else t, value)


def metadata(op: Any, meta: Count, alias: Count, limit: int | None = None) -> None:
    """META against eager over the samples of all dtypes."""
    for dtype in dtypes_of(op):
        for number, sample in spread(op, dtype, limit):
            _metadata_of(f"{dtype} #{number}", op.op, parts(sample), meta, alias)


def variants(op: Any, count: Count, limit: int | None = None) -> None:
    """The in-place form, metadata and aliasing."""
    for dtype in dtypes_of(op) if op.get_inplace() is not None else ():
        for number, sample in spread(op, dtype, limit):
            _metadata_of(f"{dtype} #{number}", op.get_inplace(), parts(sample), count, count)


def _metadata_of(where: str, function: Any, sample: Any, meta: Count, alias: Count) -> None:
    if not is_strided(sample):
        meta.refused += 1
        return
    inputs = cloned(sample)
    mode = FakeMode()
    fakes = fakes_of(mode, inputs)
    expected, error = _outcome(function, inputs, contextlib.nullcontext())
    if error is not None or not is_strided(expected):  # eager does not accept its own sample
        meta.refused += 1
        return
    meta.compared += 1
    got, found = _outcome(function, fakes, mode)
    if isinstance(found, DataDependentError):
        meta.data += 1
        return
    different = metadata_difference(expected, got) if found is None else f"{type(found).__name__}: {found}"
    if different:
        meta.fail(where, different)
        return
    alias.compared += alias is not meta
    wanted, have = aliasing(tensors(inputs), tensors(expected)), aliasing(tensors(fakes), tensors(got))
    if wanted != have:
        alias.fail(where, f"(input it is, input shared with, output shared with) {have} instead of {wanted}")


def metadata_difference(expected: Any, got: Any) -> str | None:
    """What differs between a real result and a fake one, None if nothing."""
    wanted, have = leaves(expected), leaves(got)
    if len(wanted) != len(have):
        return f"{len(have)} results instead of {len(wanted)}"
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


def values(op: Any, count: Count, limit: int | None = None) -> None:
    """Every ATen call of the samples, equal signatures once, decomposed and run on prims."""
    for dtype in dtypes_of(op):
        recorded = Calls()
        for _, sample in spread(op, dtype, limit, dtype is BACKWARD_DTYPE and op.supports_autograd):
            _record(op.op, parts(sample), recorded, count)
        _compare_calls(recorded, dtype, count)


def _compare_calls(recorded: Calls, dtype: torch.dtype, count: Count) -> None:
    for func, args, kwargs in recorded.calls.values():
        try:
            kind, failure = check(func, args, kwargs, compare=not is_random(func))
        except (RuntimeError, ValueError, IndexError):  # eager takes no copies of sparse ones or of parts, or no empty ones
            count.refused += 1
            continue
        count.compared += 1
        count.data += kind == "extern"
        if failure:
            count.fail(f"{func} {dtype}", failure)


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


# no elements --------------------------------------------------------------------------------------

UNCHECKED = ("embedding_bag", "segment_reduce")  # eager reads outside of what has no elements, and ends the process


def empties(op: Any, count: Count, limit: int | None = None, dtypes: Iterable[torch.dtype] | None = None) -> None:
    """`values` of the samples with each size in turn made 0 wherever it occurs; calls that eager refuses are left out."""
    if any(name in op.name for name in UNCHECKED):
        return
    for dtype in dtypes_of(op) if dtypes is None else [d for d in dtypes if d in dtypes_of(op)]:
        recorded = Calls()
        for _, sample in spread(op, dtype, limit):
            given = parts(sample)
            for size in {n for t in tensors(given) for n in t.shape if n} if is_strided(given) else ():
                _record(op.op, mapped(functools.partial(_emptied, size=size), given), recorded, count)
        recorded.calls = {key: call for key, call in recorded.calls.items() if any(not t.numel() for t in tensors(call[1:]))}
        _compare_calls(recorded, dtype, count)


def _emptied(t: Any, size: int) -> Any:
    """A contiguous tensor without elements where t has a dim of this size."""
    if not isinstance(t, torch.Tensor) or size not in t.shape:
        return t
    return torch.empty([0 if n == size else n for n in t.shape], dtype=t.dtype)


# dtypes that differ -------------------------------------------------------------------------------

OTHERS = (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


def promotion(op: Any, meta: Count, count: Count, limit: int | None = None) -> None:
    """Samples of several tensors in float32, one of these in another dtype, as it is and as a number in a tensor: metadata and `values`."""
    recorded = Calls()
    given = [parts(s) for _, s in spread(op, torch.float32, limit)] if torch.float32 in dtypes_of(op) else []
    for sample in given if not any(name in op.name for name in UNCHECKED) else ():
        floats = [t for t in tensors(sample) if t.dtype is torch.float32] if is_strided(sample) else []
        for one, dtype, number in itertools.product(floats[:3] if len(floats) > 1 else (), OTHERS, (False, True)):
            fresh = mapped(functools.partial(_cast, one=one, dtype=dtype, number=number), sample)
            _metadata_of(f"{[(t.dtype, tuple(t.shape)) for t in tensors(fresh)]}", op.op, fresh, meta, meta)
            _record(op.op, fresh, recorded, count)
    _compare_calls(recorded, torch.float32, count)


def _cast(t: Any, one: torch.Tensor, dtype: torch.dtype, number: bool) -> Any:
    """`one` in another dtype, or its first element alone."""
    if t is not one:
        return t.detach() if isinstance(t, torch.Tensor) else t
    return (one.detach().reshape(-1)[0] if number and one.numel() else one.detach()).to(dtype)


# layouts -----------------------------------------------------------------------------------------


def layouts(op: Any, meta: Count, count: Count, limit: int | None = None) -> None:
    """Samples laid out anew, in float32 (else the first dtype): metadata, aliasing, and the values of their ATen calls."""
    dtype = next(iter(dtypes_of(op)), None)
    if dtype is None:
        return
    recorded = Calls()
    for number, sample in spread(op, dtype, limit):
        for name, lay_out in LAYOUTS.items():
            fresh = _laid_out(parts(sample), lay_out)
            if fresh is not None:
                _metadata_of(f"{dtype} #{number} {name}", op.op, fresh, meta, meta)
                if name not in CUT:
                    _record(op.op, fresh, recorded, count)
    _compare_calls(recorded, dtype, count)


def _with_gaps(t: torch.Tensor) -> torch.Tensor:
    """Every second element of each row of a larger tensor, not from the start."""
    if t.ndim == 0 or t.numel() < 2:
        return t
    base = torch.zeros((*t.shape[:-1], 2 * t.shape[-1] + 1), dtype=t.dtype)
    return base[..., 1::2].copy_(t)


def _columns_first(t: torch.Tensor) -> torch.Tensor:
    """The last two dims swapped in memory."""
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim >= 2 else t


def _channels_last(t: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.ndim]) if t.ndim in formats else t


def _broadcast(t: torch.Tensor) -> torch.Tensor:
    """The first row for all, with stride 0."""
    return t[:1].expand(t.shape) if t.ndim >= 2 and t.shape[0] > 1 else t


def _one_column(t: torch.Tensor) -> torch.Tensor:
    """The first column alone: a dimension of size one whose stride says little."""
    return t[..., :1] if t.ndim >= 2 else t


def _one_row_columns_first(t: torch.Tensor) -> torch.Tensor:
    """The same for the first row of a transposed tensor."""
    return _columns_first(t)[..., :1, :] if t.ndim >= 2 else t


CUT = {"one column": _one_column, "one row, columns first": _one_row_columns_first}  # which eager may refuse
LAYOUTS = {
    "with gaps": _with_gaps,
    "columns first": _columns_first,
    "channels last": _channels_last,
    "broadcast": _broadcast,
} | CUT


def _laid_out(sample: Any, lay_out: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The sample with plain tensors in another layout; None when no tensor changes."""
    changed = False

    def one(t: Any) -> Any:
        nonlocal changed
        if not isinstance(t, torch.Tensor) or t.is_conj() or t.is_neg():
            return t
        fresh = lay_out(t.detach())
        changed |= (fresh.shape, fresh.stride()) != (t.shape, t.stride())
        return fresh

    fresh = mapped(one, sample) if is_strided(sample) else None
    return fresh if changed else None


# out= --------------------------------------------------------------------------------------------


CORRUPTING = ("lu_unpack", "linalg.lu")  # eager writes past the end of outputs of another dtype


def outputs(op: Any, count: Count, limit: int | None = None) -> None:
    """`out=`: tensors of the right sizes in two layouts, and in a dtype that may or may not hold the result."""
    for dtype in dtypes_of(op) if op.supports_out and op.name not in CORRUPTING else ():
        for number, sample in spread(op, dtype, limit):
            _outputs_of(f"{dtype} #{number}", op.op, parts(sample), count)


def _outputs_of(where: str, function: Any, sample: Any, count: Count) -> None:
    if not is_strided(sample):
        count.refused += 1
        return
    expected, _ = _outcome(function, cloned(sample), contextlib.nullcontext())
    if not tensors(expected) or not is_strided(expected):
        count.refused += 1
        return
    for name, make in OUTPUTS.items():
        given = (sample[0], sample[1], {**sample[2], "out": mapped(make, expected)})
        _same_outcome(f"{where} {name}", function, given, count)


def _reversed(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(t.shape[::-1], dtype=t.dtype).permute(tuple(range(t.ndim))[::-1])


OUTPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: torch.empty(t.shape, dtype=t.dtype),
    "reversed": _reversed,
    "in float64": lambda t: torch.empty(t.shape, dtype=torch.float64),
    "in int32": lambda t: torch.empty(t.shape, dtype=torch.int32),
}


def _same_outcome(where: str, function: Any, sample: Any, count: Count) -> None:
    """Both raise the same, or both give results with the same metadata and aliasing."""
    inputs = cloned(sample)
    mode = FakeMode()
    fakes = fakes_of(mode, inputs)
    expected, error = _outcome(function, inputs, contextlib.nullcontext())
    got, found = _outcome(function, fakes, mode)
    count.compared += 1
    if isinstance(found, DataDependentError):
        count.data += 1
    elif type(found) is not type(error):
        count.fail(where, f"{type(found).__name__}: {found} instead of {type(error).__name__}: {error}")
    elif error is None:
        different = metadata_difference(expected, got)
        if different is None and aliasing(tensors(inputs), tensors(expected)) != aliasing(tensors(fakes), tensors(got)):
            different = "the result is another tensor"
        if different:
            count.fail(where, different)


def _outcome(function: Any, sample: Any, context: Any) -> tuple[Any, Exception | None]:
    try:
        with warnings.catch_warnings(), context:
            warnings.simplefilter("ignore")
            return call(function, sample), None
    except Exception as error:  # compared with what the other side raises
        return None, error


# errors ------------------------------------------------------------------------------------------


def errors(op: Any, count: Count, limit: int | None = None) -> None:
    """error_inputs: the exception type, on fakes or when the decompositions run, is eager's."""
    if op.error_inputs_func is None:
        return
    for number, case in enumerate(itertools.islice(op.error_inputs("cpu"), limit)):
        sample = parts(case.sample_input)
        if not is_strided(sample):
            count.refused += 1
            continue
        inputs = cloned(sample)
        mode = FakeMode()
        fakes = fakes_of(mode, inputs)
        _, expected = _outcome(op.op, inputs, contextlib.nullcontext())
        if expected is None:
            count.refused += 1
            continue
        _, got = _outcome(op.op, fakes, mode)
        if got is None:  # what only data can tell is raised when the graph runs
            _, got = _outcome(op.op, cloned(sample), OnPrims())
        count.compared += 1
        if isinstance(got, DataDependentError):
            count.data += 1
        elif type(got) is not type(expected):
            text = "nothing" if got is None else f"{type(got).__name__} ({got})"
            count.fail(f"error #{number}", f"{text} instead of {type(expected).__name__}: {expected}")
