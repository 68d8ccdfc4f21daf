"""Every operator that takes an index or a class, at indices in range and out of it: as eager, legal or refused.

`python indices.py` says of each program whether the compiled call gives what eager gives, for each of INDICES; `--device cuda` does the
same on a GPU, where what is out of range ends the process: such calls run in processes of their own, which must end with an assertion of
the device where eager's do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

N = 5  # places along the indexed dimension
WIDTH = 3
INDICES = (-1, -N, -N - 1, N, N + 5)
"""What one place of an index is set to; all others are in range."""

Program = Callable[[torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class Case:
    """A program of (x, index); x: shape and dtype of its data; index: the index in range, of which the place `at` is set to other values."""

    program: Program
    x: tuple[int, ...] = (N, WIDTH)
    index: Any = (0, 2, 1)
    at: int = 1
    dtype: torch.dtype = torch.float32
    gradient: bool = True

    def given(self, value: int | None, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The arguments, with one place of the index set to `value`."""
        x = torch.linspace(-1, 1, steps=int(torch.Size(self.x).numel())).reshape(self.x)
        x = (x * 9).to(self.dtype) if not self.dtype.is_floating_point else x.to(self.dtype)
        index = torch.tensor(self.index)
        if value is not None:
            index.view(-1)[self.at] = value
        x = x.to(device)
        return x.requires_grad_(self.gradient and x.is_floating_point()), index.to(device)


def _rows(like: torch.Tensor, count: int = 3) -> torch.Tensor:
    """What is written to `count` rows."""
    made = torch.arange(count * WIDTH, device=like.device).reshape(count, WIDTH) + 1
    return made.to(like.dtype)


def _written(method: str, *rest: Any, **named: Any) -> Program:
    """x.method_(0, index, rows) on a copy of x."""

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x * 1
        getattr(y, method)(0, i, _rows(x), *rest, **named)
        return y * 2

    return program


def _scattered(method: str, **named: Any) -> Program:
    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return getattr(x * 1, method)(0, i.unsqueeze(1).expand(3, WIDTH), _rows(x), **named) * 2

    return program


def _put_into_zeros(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[i] = 1.0
    return y + x


def _overwritten(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """Nobody sees what is written at the index."""
    y = x * 1
    y[i] = 1.0
    y.fill_(3.0)
    return y


def _unused(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x[i].mul(2)
    F.embedding(i, x)
    return x + 1


def _only_its_size(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x * x.index_select(0, i).shape[0]


def _bag(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(i.reshape(1, 3), x, mode="mean")


def _unpooled(dims: int) -> Program:
    """Three elements, to three of the five places."""

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        values, places = (t.reshape(1, 1, 3, *[1] * (dims - 1)) for t in (x * 1, i))
        return getattr(F, f"max_unpool{dims}d")(values, places, (2, *[1] * (dims - 1)), output_size=(N, *[1] * (dims - 1)))

    return program


def _classes(**named: Any) -> Program:
    return lambda x, i: F.cross_entropy(x.t() * 2, i, **named)


def _nll2d(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.nll_loss(
        (x * 2).t().reshape(1, N, 1, WIDTH) if x.shape[0] == WIDTH else (x * 2).reshape(1, N, 1, WIDTH), i[None, None]
    )


GRID = ((0, 1, 2), (2, 1, 0))
CASES: dict[str, Case] = {
    # reads
    "gather": Case(lambda x, i: x.gather(0, i) * 2, index=GRID, at=2),
    "gather, last dim": Case(lambda x, i: x.gather(1, i) * 2, (2, N), GRID, 4),
    "gather, sum": Case(lambda x, i: x.gather(0, i).sum(), index=GRID, at=2),
    "gather of a vector": Case(lambda x, i: x.gather(0, i) + 1, (N,)),
    "gather, one element": Case(lambda x, i: x.gather(0, i) + 1, (N,), (2,), 0),
    "take_along_dim": Case(lambda x, i: torch.take_along_dim(x, i, 0), index=GRID, at=2),
    "take_along_dim, flat": Case(lambda x, i: torch.take_along_dim(x, i), (N,)),
    "index_select": Case(lambda x, i: x.index_select(0, i) * 2),
    "index_select, columns": Case(lambda x, i: x.index_select(1, i) * 2, (2, N)),
    "index_select, int32": Case(lambda x, i: x.index_select(0, i.int()) * 2),
    "index_select of a part": Case(lambda x, i: x.index_select(0, i)[:1] * 2),
    "embedding": Case(lambda x, i: F.embedding(i, x) * 2),
    "embedding, 2-d": Case(lambda x, i: F.embedding(i, x) * 2, index=GRID, at=2),
    "embedding, 0-d": Case(lambda x, i: F.embedding(i, x) * 2, index=2, at=0),
    "embedding, int32": Case(lambda x, i: F.embedding(i.int(), x) * 2, index=GRID),
    "embedding, padding": Case(lambda x, i: F.embedding(i, x, padding_idx=2) * 2, index=GRID),
    "embedding, joined": Case(lambda x, i: torch.cat([F.embedding(i, x), x, F.embedding(i + 1, x)])),
    "embedding, half of it": Case(lambda x, i: F.embedding(i, x)[:1].sum(1)),
    "embedding, softmax": Case(lambda x, i: F.softmax(F.embedding(i, x), 1) * torch.arange(1.0, 1 + WIDTH, device=x.device)),
    "embedding_bag": Case(_bag),
    "index": Case(lambda x, i: x[i] * 2),
    "index, two": Case(lambda x, i: x[i, i - i + 1] * 2),
    "index, both": Case(lambda x, i: x[i, i], (N, N)),
    "index, last": Case(lambda x, i: x[:, i] * 2, (2, N)),
    "index, apart": Case(lambda x, i: x[i, :, i] * 2, (N, 2, N)),
    "index, 2-d": Case(lambda x, i: x[i] * 2, index=GRID),
    "index, int32": Case(lambda x, i: x[i.int()] * 2),
    "index, part": Case(lambda x, i: x[i][:1] * 2),
    "index by one": Case(lambda x, i: x[i] * 2, index=2, at=0),
    "index with a list": Case(lambda x, i: x[[0, 1]] + x[i[0]], index=(1, 2), at=0),
    "index, padded": Case(lambda x, i: F.pad(x[i], (1, 1)) + 1),
    "index, joined": Case(lambda x, i: torch.cat([x[i], x * 2])),
    "index, shifted": Case(lambda x, i: torch.cat([x, x[i + 2 - 2]])),
    "take": Case(lambda x, i: x.take(i) * 2, (N, 1)),
    "select_index": Case(lambda x, i: torch.index_select(x, 0, i).sum()),
    **{f"max_unpool{dims}d": Case(_unpooled(dims), (3,)) for dims in (1, 2, 3)},
    "embedding, renormalized": Case(lambda x, i: F.embedding(i, x * 1, max_norm=1.0), gradient=False),
    "embedding_bag, weighted": Case(lambda x, i: F.embedding_bag(i[None], x, per_sample_weights=x[:3, 0][None], mode="sum")),
    "sort of gather": Case(lambda x, i: x.gather(0, i).sort().values, (N,)),
    # constants
    "one_hot": Case(lambda x, i: F.one_hot(i, N) * 2 + x.sum().long()),
    "one_hot, float": Case(lambda x, i: F.one_hot(i, N).to(x) @ x),
    "index of ones": Case(lambda x, i: torch.ones(1, device=x.device).expand(N)[i] + x[0]),
    "index_select of zeros": Case(lambda x, i: torch.zeros(N, WIDTH, device=x.device).index_select(0, i) + x[0]),
    "gather of a constant": Case(lambda x, i: torch.full((N,), 3.0, device=x.device).gather(0, i) + x[:3, 0]),
    "embedding of ones": Case(lambda x, i: F.embedding(i, torch.ones(N, WIDTH, device=x.device)) + x[:3]),
    "take of a constant": Case(lambda x, i: torch.full((N,), 3.0, device=x.device).take(i) + x[:3, 0]),
    "index of arange": Case(lambda x, i: torch.arange(N, device=x.device)[i] + x[:3, 0]),
    # losses
    "cross_entropy": Case(_classes(), (N, 3)),
    "cross_entropy, none": Case(_classes(reduction="none"), (N, 3)),
    "cross_entropy, sum": Case(_classes(reduction="sum"), (N, 3)),
    "cross_entropy, weighted": Case(
        lambda x, i: F.cross_entropy(x.t() * 2, i, weight=torch.arange(1.0, N + 1, device=x.device)), (N, 3)
    ),
    "cross_entropy, ignored": Case(_classes(ignore_index=-1), (N, 3)),
    "cross_entropy, smooth": Case(_classes(label_smoothing=0.1), (N, 3)),
    "cross_entropy, one": Case(lambda x, i: F.cross_entropy(x, i), (N,), 2, 0),
    "nll_loss": Case(lambda x, i: F.nll_loss(x.t() * 2, i), (N, 3)),
    "nll_loss2d": Case(_nll2d, (N, 3)),
    "nll_loss2d, none": Case(lambda x, i: F.nll_loss(x.reshape(1, N, 1, 3), i.reshape(1, 1, 3), reduction="none"), (N, 3)),
    "multi_margin_loss": Case(lambda x, i: F.multi_margin_loss(x.t() * 2, i), (N, 3)),
    "multilabel_margin_loss": Case(lambda x, i: F.multilabel_margin_loss(x * 2, i), (N,), (3, 0, -1, 1, 1), 1),
    # writes
    "scatter": Case(_scattered("scatter")),
    "scatter, value": Case(lambda x, i: x.scatter(0, i.unsqueeze(1), 3.0)),
    "scatter, add": Case(lambda x, i: x.detach().scatter(0, i.unsqueeze(1), 3.0, reduce="add")),
    "scatter, multiply": Case(_scattered("scatter", reduce="multiply"), gradient=False),
    "scatter of a vector": Case(lambda x, i: x.scatter(0, i, x[:3] + 1), (N,)),
    "scatter_": Case(_written("index_copy_")),
    "scatter_add": Case(_scattered("scatter_add")),
    **{
        f"scatter_reduce, {reduce}{'' if include else ', without self'}": Case(
            lambda x, i, reduce=reduce, include=include: (x * 1).scatter_reduce(
                0, i.unsqueeze(1).expand(3, WIDTH), _rows(x), reduce, include_self=include
            )
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    },
    "index_add": Case(_written("index_add_")),
    "index_add, alpha": Case(_written("index_add_", alpha=2)),
    "index_add, columns": Case(lambda x, i: x.index_add(1, i, torch.ones(2, 3, device=x.device)), (2, N)),
    "index_copy": Case(lambda x, i: x.index_copy(0, i, _rows(x))),
    "index_fill": Case(lambda x, i: x.index_fill(0, i, 3.0)),
    "index_fill by a tensor": Case(lambda x, i: x.index_fill(0, i, x.detach().sum()), gradient=False),
    "index_reduce, prod": Case(_written("index_reduce_", "prod"), gradient=False),
    "index_reduce, amax": Case(_written("index_reduce_", "amax"), gradient=False),
    "index_put": Case(lambda x, i: (x * 1).index_put((i,), _rows(x))),
    "index_put, one value": Case(_put_into_zeros),
    "index_put, accumulate": Case(lambda x, i: (x * 1).index_put((i,), _rows(x), accumulate=True)),
    "index_put, two": Case(lambda x, i: (x * 1).index_put((i, i), torch.ones(3, device=x.device)), (N, N)),
    "index_put, integers": Case(_written("index_copy_"), dtype=torch.int64),
    "put": Case(lambda x, i: (x * 1).put(i, _rows(x, 1)[0]), (N, 1), gradient=False),
    "put, accumulate": Case(lambda x, i: (x * 1).put(i, _rows(x, 1)[0], accumulate=True), (N, 1), gradient=False),
    "bincount": Case(lambda x, i: torch.bincount(i, minlength=N) + x.sum().long(), gradient=False),
    "repeat_interleave": Case(lambda x, i: x[:3].repeat_interleave(i, 0), gradient=False),
    # rows of nothing
    **{
        f"{name}, of nothing": Case(
            program, (N, 0), gradient=name not in ("index_add", "index_copy")
        )  # theirs look at the index, late
        for name, program in {
            "index": lambda x, i: x[i] * 2,
            "index_select": lambda x, i: x.index_select(0, i) * 2,
            "embedding": lambda x, i: F.embedding(i[None], x) * 2,
            "index_add": lambda x, i: x.index_add(0, i, x[:3]),
            "index_copy": lambda x, i: x.index_copy(0, i, x[:3]),
            "index_fill": lambda x, i: x.index_fill(0, i, 3.0),
            "index_put": lambda x, i: (x * 1).index_put((i,), x[:3], accumulate=True),
            "scatter": lambda x, i: x.scatter(0, i[:, None].expand(3, 0), 3.0),
        }.items()
    },
    "binary_cross_entropy": Case(lambda x, i: F.binary_cross_entropy(x[0].sigmoid(), i.to(x.dtype)) * 2, index=(0, 1, 1)),
    # nobody needs the values
    "overwritten": Case(_overwritten, gradient=False),
    "unused": Case(_unused),
    "only its size": Case(_only_its_size),
}

_WITHOUT: dict[str, str] = {
    "the target is no class": "binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss "
    "huber_loss_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward",
    "it gives the indices": "_cummax_helper _cummin_helper kthvalue median min mode nanmedian topk sort",
    "the forward made the indices": "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward "
    "fractional_max_pool3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
    "a part of another": "_embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward "
    "_index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate",
    "a class out of range is read outside of memory by eager, and its kernel is called": "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss "
    "_use_cudnn_ctc_loss _use_miopen_ctc_loss miopen_ctc_loss",
    "sparse": "_convert_indices_from_csr_to_coo _sparse_coo_tensor_with_dims_and_tensors sparse_compressed_tensor",
    "torch has no kernel that takes its indices": "segment_reduce",
}
WITHOUT = {name: reason for reason, names in _WITHOUT.items() for name in names.split()}
"""ATen operators with an argument that has the name of an index or a class, and no program, and why."""


def operators() -> set[str]:
    """ATen operators with a tensor that has the name of an index or a class, but for those that are made of others."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if name == schema.name or name.endswith("_") or "out" in schema.overload_name:
            continue
        tensors = [a.name for a in schema.arguments if "Tensor" in str(a.type)]
        if any(re.search(r"ind(ex|ices)$|targets?$|labels?$", each) for each in tensors) and not _is_composite(schema):
            found.add(name)
    return found


def _is_composite(schema: Any) -> bool:
    full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
    except RuntimeError:  # an operator of TorchScript
        return True


class Called(TorchDispatchMode):
    """Which ATen operators the programs call."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name.partition("::")[2].rstrip("_"))
        return func(*args, **(kwargs or {}))


def outcome(function: Program, case: Case, value: int | None, device: str) -> Any:
    """What a call gives: results and gradient on the CPU, or the exception's type and text."""
    try:
        x, index = case.given(value, device)
        result = function(x, index)
        gradient = None
        if isinstance(result, torch.Tensor) and result.requires_grad:
            (gradient,) = torch.autograd.grad(result.sum(), x)
        return tuple(None if t is None else t.detach().cpu() for t in (result, gradient))
    except Exception as error:
        return type(error), str(error)


def agree(one: Any, other: Any) -> bool:
    """Whether two outcomes are equal; floats up to rounding."""
    if isinstance(one[0], type) or isinstance(other[0], type):
        return bool(one == other)
    try:
        torch.testing.assert_close(one, other, equal_nan=True)
    except AssertionError:
        return False
    return True


def _compiled(program: Program, dynamic: bool | None = None) -> Program:
    import tracework  # which asks for GPUs: a process that has done so can be forked no more

    return tracework.compile(program, dynamic=dynamic)


def differences(name: str, dynamic: bool | None = None) -> Iterator[tuple[int | None, Any, Any]]:
    """On the CPU: (index, eager's outcome, the compiled program's) where they differ."""
    case = CASES[name]
    compiled = _compiled(case.program, dynamic)
    for value in (None, *INDICES):
        expected, found = (outcome(f, case, value, "cpu") for f in (case.program, compiled))
        if value is None and isinstance(expected[0], type):
            raise ValueError(f"{name}: the program is refused in range: {expected}")
        if not agree(found, expected):
            yield value, expected, found


# --- on a GPU


def refused_by_eager(name: str) -> list[int]:
    """The indices that eager refuses on the CPU: on a GPU they end the process, so that each such call is made in its own.

    This, too, is asked in a process of its own: a backward starts CUDA, which no fork survives.
    """
    case = CASES[name]
    return [v for v in INDICES if isinstance(outcome(case.program, case, v, "cpu")[0], type)]


Job = tuple[str, tuple[int | None, ...], bool]
"""Name of a program, indices, and whether it is compiled."""


def on_gpu(job: Job) -> bytes:
    """In another process: outcome and what was written to stderr, for each index; pickled, as tensors would be shared otherwise."""
    name, values, compiles = job
    os.sched_setaffinity(0, {sorted(CORES)[os.getpid() % len(CORES)]})  # so that each starts one Triton process, not one a core
    case, answers = CASES[name], []
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        function = _compiled(case.program) if compiles else case.program
        for value in values:
            found = outcome(function, case, value, "cuda")
            written.seek(0)
            answers.append((found, written.read().decode(errors="replace")))
    return pickle.dumps(answers)


CORES = os.sched_getaffinity(0)
Answers = list[tuple[Any, str]]


def run_all(
    processes: int, jobs: list[tuple[str, tuple[int | None, ...]]], together: int
) -> list[tuple[str, Any, Answers, Answers]]:
    """Program, indices, answers of the compiled and of the eager calls; so many jobs in one process, one after the other."""
    found = []
    for compiles in (True, False):
        with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
            answers = pool.map(on_gpu, [(*job, compiles) for job in jobs], together)
            found.append([pickle.loads(each) for each in answers])
    return [(*job, *answers) for job, *answers in zip(jobs, *found, strict=True)]


def differences_on_gpu(names: list[str], processes: int) -> Iterator[str]:
    """A line for each difference. What is refused runs last, and finds its kernels made."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        refused = dict(zip(names, pool.map(refused_by_eager, names), strict=True))
    jobs = [(name, (None, *(v for v in INDICES if v not in refused[name]))) for name in names]
    for name, values, found, expected in run_all(processes, jobs, 2):
        for value, (one, said), (other, _) in zip(values, found, expected, strict=True):
            if not agree(one, other):
                yield f"{name} at {value}: eager {other}, here {one} {said[-300:]}"
    print(f"in range: {len(names)} programs", flush=True)
    for end in (-1, 0):
        assertions, ours = 0, 0
        for name, values, found, expected in run_all(processes, [(n, (refused[n][end],)) for n in names if refused[n]], 1):
            (one, said), (other, _) = found[0], expected[0]
            asserted = ["device-side assert" in str(each[1]) for each in (one, other)]
            assertions += asserted[1]
            ours += "index out of range in " in said
            if asserted[0] != asserted[1] or not asserted[0] and not agree(one, other):
                yield f"{name} at {values[0]}: eager {other}, here {one}"
            elif "index out of range in " in said and f", integration_tests/{Path(__file__).name}:" not in said:
                yield f"{name} at {values[0]}: no place in the source in {said}"
        print(f"{('too small', 'too large')[end]}: {assertions} assertions by eager, {ours} by generated kernels", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=12)
    given = parser.parse_args()
    names = given.names or list(CASES)
    if given.device == "cuda":
        lines = differences_on_gpu(names, given.processes)
    else:
        lines = (f"{name} at {v}: eager {expected}, here {found}" for name in names for v, expected, found in differences(name))
    count = 0
    for line in lines:
        count += 1
        print(line, flush=True)
    print(f"{count} differences")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
