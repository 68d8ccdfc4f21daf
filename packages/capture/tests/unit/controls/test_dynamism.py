"""What was seen to change is known to functions that are compiled later, in another run, say."""

import json

import pytest
import torch
import tracework_capture as capture
from tracework_capture.hook import dynamism


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(dynamism, "_known", {})
    monkeypatch.setattr(dynamism, "_seen", {})


def scaled(x, n, factor):
    return x * n * factor


CALLS = [(torch.ones(2 + n, 4), 3 + n, 0.5 + n) for n in range(5)]


def graphs_of():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = capture.optimize(backend)(scaled)
    for args in CALLS:
        assert torch.equal(call(*args), scaled(*args))
    return len(graphs)


def test_the_next_run_compiles_once():
    assert graphs_of() == 2
    text = capture.dump_dynamism()
    (seen,) = [v for k, v in json.loads(text)["functions"].items() if k.endswith(":scaled")]
    assert seen == {"sizes": {"x": [None, 4]}, "numbers": ["factor", "n"]}
    capture.load_dynamism(text)
    assert graphs_of() == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"format": 1}',
        '{"format": 1, "functions": {"f": 3}}',
        '{"format": 1, "functions": {"f": {"sizes": {"x": 3}, "numbers": []}}}',
        '{"format": 1, "functions": {"f": {"sizes": {}, "numbers": [3]}}}',
    ],
)
def test_a_file_of_another_kind_is_refused(text):
    with pytest.raises(capture.CaptureError, match="dump_dynamism"):
        capture.load_dynamism(text)
    assert not dynamism._known
