"""Microseconds per ATen op on fakes, static and symbolic, ours and (with --torch) torch's FakeTensor.

python tools/run_in_tree.py python benchmarks/micro/fake_ops.py [--torch]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from tracework_primops import FakeMode, SymbolTable

REPEAT = 200


def gpt_block(x, w, w2, g):
    """The calls of a transformer block, one at a time: name -> thunk."""
    aten = torch.ops.aten
    flat = x.view(-1, 64)
    h = aten.mm(flat, w)
    heads = x.view(x.size(0), 16, 4, 16).transpose(1, 2)
    scores = torch.matmul(heads, heads.transpose(-1, -2))
    return {
        "mm": lambda: aten.mm(flat, w),
        "addmm": lambda: aten.addmm(g, flat, w),
        "add": lambda: aten.add(x, x),
        "mul number": lambda: aten.mul(x, 2.0),
        "add bias": lambda: aten.add(x, g),
        "gelu": lambda: aten.gelu(h),
        "gelu_backward": lambda: aten.gelu_backward(h, h),
        "layer_norm": lambda: aten.native_layer_norm(x, [64], g, g, 1e-5),
        "softmax": lambda: aten._softmax(scores, -1, False),
        "view": lambda: x.view(-1, 64),
        "transpose": lambda: x.transpose(1, 2),
        "t": lambda: w.t(),
        "expand": lambda: g.expand(16, 64),
        "slice": lambda: x[:, 1:],
        "unsqueeze": lambda: x.unsqueeze(1),
        "sum": lambda: x.sum(-1),
        "cat": lambda: torch.cat([x, x], -1),
        "clone": lambda: x.clone(),
        "sdpa": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "bmm": lambda: aten.bmm(x, x.transpose(1, 2)),
    }


def conv_block(image, kernel, c):
    """The calls of a ResNet block."""
    aten = torch.ops.aten
    return {
        "conv": lambda: aten.convolution(image, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        "batch_norm": lambda: aten.native_batch_norm(image, c, c, c, c, True, 0.1, 1e-5),
        "relu": lambda: aten.relu(image),
        "add_": lambda: image.add_(image),
        "threshold_backward": lambda: aten.threshold_backward(image, image, 0),
        "max_pool": lambda: aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1]),
    }


def measure(convert, batch) -> dict[str, float]:
    """name -> best of five means, in microseconds."""
    inputs = [torch.randn(8, 16, 64), torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)]
    images = [torch.randn(8, 4, 16, 16), torch.randn(4, 4, 3, 3), torch.randn(4)]
    fakes = [convert(t, batch if i == 0 else None) for i, t in enumerate(inputs)]
    pictures = [convert(t, batch if i == 0 else None) for i, t in enumerate(images)]
    found = {}
    with torch.no_grad():
        for name, call in {**gpt_block(*fakes), **conv_block(*pictures)}.items():
            call()
            times = []
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(REPEAT):
                    call()
                times.append((time.perf_counter() - start) / REPEAT * 1e6)
            found[name] = min(times)
    return found


def ours(symbolic: bool) -> dict[str, float]:
    """Our fakes."""
    table = SymbolTable() if symbolic else None
    mode = FakeMode(table)
    size = table.new(8, "batch") if table else None
    return measure(lambda t, b: mode.from_real(t, (b, *t.shape[1:]) if b is not None else None), size)


def torchs() -> dict[str, float]:
    """torch's FakeTensor, static sizes."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        return measure(lambda t, b: mode.from_tensor(t), None)


def main() -> None:
    """Print a table."""
    columns = {"static": ours(False), "symbolic": ours(True)}
    if "--torch" in sys.argv:
        columns["torch static"] = torchs()
    print(f"{'us per op':22}" + "".join(f"{c:>14}" for c in columns))
    for name in columns["static"]:
        print(f"{name:22}" + "".join(f"{values[name]:14.1f}" for values in columns.values()))
    print(f"{'median':22}" + "".join(f"{statistics.median(values.values()):14.1f}" for values in columns.values()))


if __name__ == "__main__":
    main()
