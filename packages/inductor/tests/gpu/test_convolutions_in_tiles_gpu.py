"""Convolutions that a core of ours computes on a GPU, with what follows them, by each of the best guesses: against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from product_programs import check
from tracework_inductor import InductorOptions, compile_plan, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.codegen.triton.cores import tiles
from tracework_inductor.schedule.choice import Answer
from tracework_primops import prims
from tracework_runtime import load
from triton_programs import graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

OPTIONS = InductorOptions(products="tiles")
CASES = {
    "first of a network": ((4, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    "few results": ((4, 3, 65, 63), (16, 3, 3, 3), 2, 1, 1),
    "four channels": ((2, 4, 64, 64), (320, 4, 3, 3), 1, 1, 1),
    "seven channels, dilated": ((2, 7, 40, 41), (40, 7, 3, 3), 1, 2, 2),
    "along a line": ((2, 1, 1000), (33, 1, 5), 2, 2, 1),
    "in space": ((2, 3, 9, 10, 11), (24, 3, 3, 3, 3), 1, 1, 1),
    "expansion": ((4, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1),
    "projection": ((4, 256, 28, 28), (64, 256, 1, 1), 1, 0, 1),
    "odd channels": ((4, 72, 27, 29), (24, 72, 1, 1), 1, 0, 1),
    "3x3": ((4, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1),
}
"""name -> sizes of image and weight, stride, padding, dilation."""
MEMORY = {4: torch.channels_last, 5: torch.channels_last_3d}
COUNT = 2


@pytest.mark.parametrize("last", (True, False), ids=("channels last", "row-major"))
@pytest.mark.parametrize("name", CASES)
def test_values(name, last):
    torch.manual_seed(0)
    dtype = torch.bfloat16 if last else torch.float16
    *sizes, stride, padding, dilation = CASES[name]
    dims = len(sizes[0]) - 2
    memory = MEMORY.get(2 + dims, torch.contiguous_format) if last else torch.contiguous_format
    x, w = ((torch.randn(n, dtype=dtype, device="cuda") / 4).contiguous(memory_format=memory) for n in sizes)
    scale = torch.randn(sizes[1][0], device="cuda")
    reference = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[dims - 1]
    y = reference(x.double(), w.double(), None, stride, padding, dilation)
    h = torch.randn(y.shape, dtype=dtype, device="cuda").contiguous(memory_format=memory)
    wanted = torch.relu(y * scale.view(-1, *[1] * dims) + h)

    def program(x, w, scale, h):
        steps = ((n,) * dims for n in (stride, padding, dilation))
        y = prims.convolution(x, w, None, *steps, False, (0,) * dims, 1)
        y = prims.mul(prims.convert(y, torch.float32), prims.reshape(scale, (1, w.sizes[0], *[1] * dims)))
        return prims.convert(prims.relu(prims.add(y, prims.convert(h, torch.float32))), dtype)

    graph, configs = graph_of(program, x, w, scale, h), [None]
    capability = 90 if torch.cuda.get_device_capability() >= (9, 0) else 80
    lowered = lower(graph, OPTIONS)
    while configs:
        config = configs.pop()

        def choose(choices, config=config):
            if config is None:
                configs.extend(c.record() for c in tiles.configs(choices[0].core, capability)[:COUNT])
            return Answer({choices[0].name: config or {}})

        plan = schedule(lowered, OPTIONS, TritonRenderer.capabilities, choose)
        (found,) = load(compile_plan(graph, plan, OPTIONS))([x, w, scale, h])
        assert found.stride() == h.stride()
        check(found, wanted, dtype, 1)
