"""Every row of ONNX_ROWS in ONNX Runtime against PrimGraph.run: one model for three sizes."""

import prim_graphs
import pytest
import torch
from prim_records import RECORDS, SIZES
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
    every = 1 if request.config.getoption("--all-rows", default=False) else PART
    for number, record in list(enumerate(RECORDS[name]))[::every]:
        graph = program = None
        for n in SIZES:
            inputs = record.inputs(n) if record.static else [*record.inputs(n), torch.empty(n, dtype=torch.bool)]
            if record.static:
                graph = prim_graphs.static_graph(record.call, inputs, n)
            elif graph is None:
                graph = prim_graphs.symbolic_graph(record.call, record.inputs, SIZES[0], SIZES[1])
            if record.static or program is None:
                program, told = prim_graphs.program_of(graph, engine)
                for part in program.parts:
                    onnx.checker.check_model(part.model.proto, full_check=every == 1)
            try:
                prim_graphs.assert_equals_run(program, graph, inputs, record.tolerance)
                assert not told, told
            except Exception as error:
                raise AssertionError(f"record {number}, n = {n}: {error}\n{graph.text()}") from error
