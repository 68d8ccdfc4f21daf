"""Every row of ONNX_ROWS against PrimGraph.run: one model for three sizes, special values among them."""

import contextlib
import math
from dataclasses import replace

import prim_graphs
import pytest
import torch
from prim_records import RECORDS
from tracework.onnx import ONNX_ROWS, UNWRITTEN
from tracework.onnx.integers import GROWS
from tracework_primops import OPS, Op

onnx = pytest.importorskip("onnx", reason="the extra tracework[onnxrt] is not installed")
pytest.importorskip("onnxruntime", reason="the extra tracework[onnxrt] is not installed")
ROWS = sorted(op.name for op in ONNX_ROWS if isinstance(op, Op))
PART = 9
"""Of a row's records every so-and-so-many-th runs in CI, the first one always."""


RARELY = {"openvino": 5, "tvm": 60}
"""Engine -> of all records every so-and-so-many-th; `nox -s backends` has all of them."""


@pytest.fixture(scope="module")
def engine():
    return prim_graphs.engine_of("onnxrt")


def test_every_prim_has_a_row_or_a_reason():
    assert len(ROWS) >= 130
    missing = set(OPS) - set(ROWS) - set(UNWRITTEN)
    assert not missing, "give each a row in tracework/onnx/, or a reason in tracework/onnx/reasons.py"
    assert not set(UNWRITTEN) - set(OPS) and not set(ROWS) & set(UNWRITTEN)
    assert all(UNWRITTEN.values())


def test_every_row_has_records():
    assert set(ROWS) == set(RECORDS)


def test_what_grows_has_a_row():
    assert {*GROWS, *(by for by, _ in GROWS.values())} <= set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_row(name, engine, request):
    whole = request.config.getoption("--all-rows", default=False)

    def look(program):
        for part in program.parts:
            onnx.checker.check_model(part.model.proto, full_check=whole)

    for record in RECORDS[name][:: 1 if whole else PART]:
        prim_graphs.check_record(record, engine, look)
        with contextlib.suppress(prim_graphs.ByEager):
            prim_graphs.check_record(record.special(), engine)


@pytest.mark.parametrize("name", ["onnxrt", *RARELY])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_pools_of_what_engines_lose(name, value):
    engine = prim_graphs.engine_of(name)
    record = RECORDS["max_pool"][0]
    with contextlib.suppress(prim_graphs.ByEager):
        prim_graphs.check_record(
            replace(record, inputs=lambda n: [record.inputs(n)[0].index_fill(0, torch.tensor([1]), value)]), engine
        )


@pytest.mark.parametrize("name", RARELY)
def test_special_values_on_other_engines(name):
    engine = prim_graphs.engine_of(name)
    for record in [record for records in RECORDS.values() for record in records][:: RARELY[name]]:
        with contextlib.suppress(prim_graphs.ByEager):
            prim_graphs.check_record(record.special(), engine)
