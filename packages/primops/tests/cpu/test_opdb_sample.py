"""A fixed sample of OPDB.md: metadata, aliasing, layouts, out=, symbolic sizes and error inputs of some entries of op_db."""

from __future__ import annotations

import itertools
import math

import opdb
import opdb_checks
import opdb_report
import pytest
import torch
from single_op import check
from torch.testing._internal.common_methods_invocations import op_db

SAMPLE = (
    "where clamp softmax view_as expand_as unsafe_split chunk diagonal masked_scatter arange gather "
    "mm addmv matmul geqrf nn.functional.conv2d nn.functional.layer_norm native_layer_norm "
    "nn.functional.upsample_nearest nn.functional.embedding fft.rfftn fft.ihfft2 linalg.eig quantile as_strided kthvalue "
    "scatter slice_scatter nn.functional.pad.reflect nn.functional.pixel_shuffle"
).split()
LIMITS = {"meta": 3, "variants": 2, "symbolic": 2, "errors": None, "out": 1, "layouts": 1}
# entry -> columns with a known difference; OPDB.md says why
KNOWN = {
    "unsafe_split": {"aliasing", "layouts"},
    "matmul": {"out"},
    "fft.ihfft2": {"meta"},
}
OPS = {opdb.entry_name(op): op for op in op_db}


@pytest.mark.parametrize("name", [n for n in SAMPLE if n in OPS])
def test_entry_equals_eager(name):
    found = {column: count for step, most in LIMITS.items() for column, count in opdb.measure(OPS[name], step, most).items()}
    failed = {
        column: count["examples"] for column, count in found.items() if count["failed"] and column not in KNOWN.get(name, ())
    }
    assert not failed
    assert sum(count["compared"] for count in found.values())


@pytest.fixture
def one_thread():
    """Several are slower than one where there is nothing to compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
def test_entries_without_elements_equal_eager(one_thread):
    def empties(op, count):
        opdb_checks.empties(op, count, 2, (torch.float32, torch.bool, torch.complex64))

    assert _equal("empty", empties, ("slice_scatter", "nn.functional.conv2d")) > 300


@pytest.mark.filterwarnings("ignore")
def test_entries_of_several_dtypes_equal_eager(one_thread):
    several = ("block_diag", "addr", "ldexp")
    assert _equal("promotion", lambda op, count: opdb_checks.promotion(op, count, count, 2), several) > 300


def _equal(column, check, more):
    """How many cases of each tenth entry, and of `more`, were compared; none may differ without a reason in the report."""
    compared, failed = 0, {}
    for name in [*list(OPS)[::10], *more]:
        op = OPS[name]
        count = opdb_checks.Count()
        check(op, count)
        compared += count.compared
        if count.failed and not opdb_report.reason_for(name, column):
            failed[name] = count.examples
    assert not failed
    return compared


DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.complex64)
WRITTEN = {  # op -> (sizes of what is written to, of what is written, arguments)
    "slice_scatter": [((5, 4), (5, 4), (0,)), ((5, 4), (2, 4), (0, 1, 3)), ((0, 4), (0, 4), (0,)), ((5, 4), (0, 4), (0, 3, 3))],
    "select_scatter": [((5, 4), (4,), (0, 1)), ((5, 0), (0,), (0, 1)), ((5, 4), (5,), (1, -1))],
    "diagonal_scatter": [((5, 4), (4,), ()), ((5, 0), (0,), ()), ((5, 4), (3,), (1,))],
    "as_strided_scatter": [((5, 4), (2, 2), ((2, 2), (1, 2), 0)), ((5, 0), (0,), ((0,), (1,), 0))],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_cast(name):
    for sizes, source, args in WRITTEN[name]:
        for dtype, other in itertools.product(DTYPES, DTYPES):
            x, src = (torch.linspace(-3, 3, math.prod(s)).reshape(s).to(d) for s, d in ((sizes, dtype), (source, other)))
            kind, failure = check(getattr(torch.ops.aten, name).default, (x, src, *args), {})
            assert kind == "prims" and failure is None, (sizes, source, args, dtype, other)
