"""Weights as bytes: every dtype and layout, shared memory shared again."""

import json

import torch
from tracework_runtime.program.weights import Content, described, memory_of, placed

WHOLE = torch.arange(24, dtype=torch.float32)
WEIGHTS = {
    "rows": WHOLE.view(4, 6),
    "columns": WHOLE.view(4, 6).t(),
    "a part": WHOLE[6:12],
    "images": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "half": torch.randn(5).half(),
    "brain": torch.randn(3).bfloat16(),
    "small": torch.tensor(7, dtype=torch.int8),
    "complex": torch.randn(2, dtype=torch.complex64),
    "truth": torch.tensor([True, False]),
    "empty": torch.empty(0, 3),
    "trained": torch.nn.Parameter(torch.ones(2)),
}


def read(data: bytes):
    """What fills memory with these bytes."""

    def fill(parts):
        at = 0
        for part in parts:
            part[:] = data[at : at + len(part)]
            at += len(part)
        assert at == len(data)

    return fill


def test_weights_come_back():
    facts, content = described(WEIGHTS)
    data = b"".join(content)
    assert isinstance(content, Content) and len(content) == len(data) and len(data) % 64 == 0
    found = placed(json.loads(json.dumps(facts)), read(data))
    for name, weight in WEIGHTS.items():
        assert torch.equal(found[name], weight) and found[name].stride() == weight.stride() and not found[name].requires_grad
    assert found["rows"].data_ptr() == found["columns"].data_ptr() == found["a part"].data_ptr() - 24
    assert len({t.untyped_storage().data_ptr() for t in found.values() if t.numel()}) == len(WEIGHTS) - 3


def test_memory_is_that_of_the_tensor():
    made = torch.zeros(3, dtype=torch.uint8)
    memory_of(made)[1] = 5
    assert made.tolist() == [0, 5, 0] and len(memory_of(torch.empty(0))) == 0
