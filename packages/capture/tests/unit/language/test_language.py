"""Every construct of the table, captured and plain: the same results, and as few graphs as the table says."""

import builtin_cases  # noqa: F401
import class_cases  # noqa: F401
import conformance_cases  # noqa: F401
import container_cases  # noqa: F401
import library_cases  # noqa: F401
import object_cases  # noqa: F401
import protocol_cases  # noqa: F401
import pytest
import syntax_cases
import torch
import tracework_capture as capture
from cases import CASES
from interp_harness import assert_same

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("name", CASES)
def test_same_as_plain(name, caplog):
    function, graphs = CASES[name]
    counted = []

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    compiled = capture.optimize(backend)(function)
    for _ in range(2):
        torch.manual_seed(0)
        x = torch.randn(2, 3)
        count = syntax_cases.COUNT
        expected = function(x.clone())
        syntax_cases.COUNT = count
        assert_same(compiled(x.clone()), expected)
    assert "please report" not in caplog.text
    assert len(counted) == graphs, [str(gm.graph) for gm in counted]
