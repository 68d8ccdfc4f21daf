"""Every error that a program may meet goes from process to process as it is."""

import pickle

import pytest
import torch
import tracework_aotautograd.errors as aot_errors
import tracework_capture.errors as capture_errors
import tracework_inductor.errors as inductor_errors
import tracework_primops.errors as prim_errors
import tracework_runtime.errors as runtime_errors
from tracework import errors
from tracework_capture.errors import UserLocation
from tracework_primops import DecompositionError, aten_graph

NODE = next(n for n in aten_graph(torch.sin, torch.ones(2)).graph.nodes if n.op == "call_function")
PLACE = UserLocation("model.py", 3, "forward")

ERRORS = (
    errors.CompileError("inductor", ValueError("no"), "model.py:3"),
    errors.UnknownName("mode", "quick", ["default"]),
    errors.MixedDevices("module", ["meta", "cpu"]),
    errors.MissingCompiler("none"),
    errors.InvalidArgument("no"),
    aot_errors.Refusal("no", "model.py:3"),
    capture_errors.BackendError("mine", ValueError("no")),
    capture_errors.OpaqueCallError("f", "raised"),
    capture_errors.ForbiddenCall("f", PLACE),
    capture_errors.Unsupported("call_unknown", "f", (PLACE,)),
    capture_errors.ControlMisuse("no"),
    inductor_errors.LoweringError("exp", "model.py:3", "no"),
    prim_errors.MixedTensorError("exp"),
    prim_errors.DataDependentError("exp"),
    prim_errors.GuardOnUnbackedError("u0 > 3", "model.py:3"),
    DecompositionError(NODE, "no"),
    runtime_errors.BuildError("no", advice="yes", excerpt="line"),
    runtime_errors.IndexOutOfRange("kernel0", "model.py:3"),
    runtime_errors.ResultMismatch("aten::mm", "strides", (1, 2), (2, 1)),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again).keys() == vars(error).keys()
    assert {k: str(v) for k, v in vars(again).items()} == {k: str(v) for k, v in vars(error).items()}
