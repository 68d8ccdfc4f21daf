"""The recurrent layers of a GPU's library on fakes: torch's meta kernel knows the sizes, the layouts are the library's."""

import pytest
import torch
from tracework_primops import FakeMode
from tracework_primops.errors import DataDependentError

HIDDEN, BATCH, STEPS = 6, 4, 5
LSTM, GRU = 2, 3
CASES = {
    "one layer": {},
    "batch first": {"batch_first": True},
    "layers": {"layers": 3, "mode": GRU},
    "both directions": {"bidirectional": True, "layers": 2, "batch_first": True},
    "projected": {"proj": 2, "bidirectional": True},
    "packed": {"batch_sizes": [4, 3, 1]},
    "packed, both directions": {"batch_sizes": [4, 4], "bidirectional": True, "mode": GRU},
    "halves": {"dtype": torch.float16, "batch_first": True},
}


def arguments(
    place, *, layers=1, mode=LSTM, proj=0, batch_first=False, bidirectional=False, batch_sizes=(), dtype=torch.float32, train=False
):  # fmt: skip
    directions = 2 if bidirectional else 1
    sizes = (sum(batch_sizes), 3) if batch_sizes else (BATCH, STEPS, 3) if batch_first else (STEPS, BATCH, 3)
    hx = place(torch.empty(layers * directions, BATCH, proj or HIDDEN, dtype=dtype))
    cx = place(torch.empty(layers * directions, BATCH, HIDDEN, dtype=dtype)) if mode == LSTM else None
    weights = [place(torch.empty(4 * HIDDEN, 3, dtype=dtype))]
    x = place(torch.empty(sizes, dtype=dtype))
    return (
        x,
        weights,
        4,
        None,
        hx,
        cx,
        mode,
        HIDDEN,
        proj,
        layers,
        batch_first,
        0.0,
        train,
        bidirectional,
        list(batch_sizes),
        None,
    )


@pytest.mark.parametrize("case", CASES)
def test_results_in_inference(case):
    call, options = torch.ops.aten._cudnn_rnn.default, CASES[case]
    expected = call(*arguments(lambda t: t.to("meta"), **options))
    mode = FakeMode()
    with mode:
        found = call(*arguments(mode.from_real, **options))
    dtype = options.get("dtype", torch.float32)
    assert [f.shape for f in found[:4]] == [e.shape for e in expected[:4]]
    assert [f.dtype for f in found[:4]] == [dtype, dtype, dtype, torch.uint8]
    out = found[0]
    by_steps = out.transpose(0, 1) if options.get("batch_first") else out
    assert by_steps.is_contiguous() and all(f.is_contiguous() for f in found[1:4])


def test_a_workspace_of_training_is_as_large_as_the_library_says():
    mode = FakeMode()
    with mode, pytest.raises(DataDependentError):
        torch.ops.aten._cudnn_rnn.default(*arguments(mode.from_real, train=True))
