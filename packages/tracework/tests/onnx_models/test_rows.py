"""Every row of ONNX_ROWS in ONNX Runtime against PrimGraph.run: one model for three sizes."""

import prim_graphs
import pytest
import torch
from prim_records import RECORDS
from tracework.onnx import ONNX_ROWS, UNWRITTEN
from tracework_primops import OPS, Op

onnx = pytest.importorskip("onnx", reason="the extra tracework[onnxrt] is not installed")
pytest.importorskip("onnxruntime", reason="the extra tracework[onnxrt] is not installed")
ROWS = sorted(op.name for op in ONNX_ROWS if isinstance(op, Op))
PART = 9
"""Of a row's records every so-and-so-many-th runs in CI, the first one always."""


@pytest.fixture(scope="module")
def engine():
    from tracework.onnx.engines.onnxrt import OnnxRuntime

    return OnnxRuntime({"session_options": {"intra_op_num_threads": 1}}, torch.device("cpu"))


def test_every_prim_has_a_row_or_a_reason():
    assert len(ROWS) >= 130
    assert set(ROWS) | set(UNWRITTEN) == set(OPS) and not set(ROWS) & set(UNWRITTEN)
    assert all(UNWRITTEN.values())


def test_every_row_has_records():
    assert set(ROWS) == set(RECORDS)


@pytest.mark.parametrize("name", ROWS)
def test_row(name, engine, request):
    whole = request.config.getoption("--all-rows", default=False)

    def look(program):
        for part in program.parts:
            onnx.checker.check_model(part.model.proto, full_check=whole)

    for record in RECORDS[name][:: 1 if whole else PART]:
        prim_graphs.check_record(record, engine, look)
