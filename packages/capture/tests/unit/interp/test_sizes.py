"""Sizes and numbers that change between calls become symbols; at most two captures."""

import pytest
import torch
from interp_harness import Runner


def placeholders(captured):
    return [(b.role, str(b.source)) for b in captured.graph.inputs]


def test_second_size_becomes_a_symbol():
    def f(x, w):
        b, n = x.shape
        return (x @ w).reshape(b * 2, -1) * n + torch.arange(n).sum()

    runner = Runner()
    w = torch.randn(8, 4)
    f_eager = f
    for n in (5, 7, 9):
        w = torch.randn(n, 4)
        x = torch.randn(3, n)
        torch.testing.assert_close(runner.call(f, x, w), f_eager(x, w))
    assert ("size", "x.size(1)") not in placeholders(runner.graphs[0])
    assert ("size", "x.size(1)") in placeholders(runner.graphs[1])
    assert runner.graphs[1].symbols.conditions


def test_int_argument():
    def f(x, n):
        return x[:n] * n

    runner = Runner()
    x = torch.randn(10, 3)
    for n in (4, 6, 7):
        torch.testing.assert_close(runner.call(f, x, n), x[:n] * n)
    assert ("size", "n") in placeholders(runner.graphs[1])


def test_dynamic_true_at_once():
    def f(x):
        return x.sum(0) / x.shape[0], x.shape[0] + 1, x.view(x.shape[0] // 2, -1)

    runner = Runner(dynamic=True)
    x = torch.randn(6, 4)
    total, n, halves = runner.call(f, x)
    torch.testing.assert_close(total, x.sum(0) / 6)
    assert n == 7 and halves.shape == (3, 8)
    assert ("size", "x.size(0)") in placeholders(runner.graphs[0])


def test_text_of_shapes_is_written_later():
    """torch._assert(..., f"...{x.shape}") costs neither a break nor a version for each size."""

    def f(x):
        torch._assert(x.dim() == 2, f"expected two dims, got {x.shape}")
        return x * 2, f"<{x.shape}>", str(x.shape), repr(tuple(x.shape))

    runner = Runner(dynamic=True)
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        doubled, *texts = runner.call(f, x)
        torch.testing.assert_close(doubled, x * 2)
        assert texts == [f"<{x.shape}>", str(x.shape), repr(tuple(x.shape))]
    assert len(runner.graphs) == 3  # one for each call, as the runner keeps none: no break
    found = [str(c.condition) for c in runner.graphs[0].symbols.conditions]
    assert not any(text.split("==")[-1].strip().isdigit() for text in found), found
    with pytest.raises(AssertionError, match=r"got torch.Size\(\[3, 4, 5\]\)"):
        runner.call(f, torch.randn(3, 4, 5))


def test_text_of_shapes_that_the_program_looks_at():
    def f(x):
        text = f"{x.shape}"
        same = (
            text == "torch.Size([3, 4])",
            "torch.Size([3, 4])" == text,
            str(x.shape) != text,
            text in ("a", "torch.Size([3, 4])"),
        )
        return x + 1, same, {text: 1}, text.upper(), text + "!", len(text), "Size" in text

    runner = Runner(dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4)
        mine, theirs = runner.call(f, x), f(x)
        torch.testing.assert_close(mine[0], theirs[0])
        assert mine[1:] == theirs[1:]


@pytest.mark.parametrize("which", ["attention", "layer", "stack"])
def test_transformer_layers_keep_sizes_symbolic_without_gradients(which):
    """Their fused eager kernels are not taken: ordinary operations, one version for all lengths."""
    import tracework_capture as capture

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    stack = torch.nn.TransformerEncoder(layer, 2)
    module = {"attention": layer.self_attn, "layer": layer, "stack": stack}[which].eval()
    graphs = []
    compiled = capture.optimize(lambda gm, inputs: graphs.append(str(gm.graph)) or gm.forward, dynamic=True)(module)
    for length in (5, 7, 9):
        x = torch.randn(2, length, 32)
        args = (x, x, x) if which == "attention" else (x,)
        with torch.no_grad():
            mine, theirs = compiled(*args), module(*args)
        torch.testing.assert_close(mine, theirs)
    assert len(graphs) == 1
    assert "_native_multi_head" not in graphs[0] and "_encoder_layer_fwd" not in graphs[0]


BATCHES = {  # programs, shapes of which one more size changes at a time
    "tokens": (lambda x: x * 2, [(8, 5), (8, 6), (7, 9)]),
    "features": (lambda x: x.softmax(-1), [(8, 5, 16), (8, 6, 16), (7, 9, 16)]),
    "signals": (lambda x: torch.nn.functional.conv1d(x, torch.ones(2, 4, 3)), [(8, 4, 9), (8, 4, 12), (7, 4, 10)]),
    "images": (lambda x: torch.nn.functional.conv2d(x, torch.ones(2, 4, 3, 3)), [(8, 4, 9, 8), (8, 4, 12, 7), (7, 4, 10, 10)]),
    "videos": (lambda x: x.mean((-1, -2)), [(8, 4, 3, 9, 8), (8, 4, 5, 7, 9), (7, 4, 4, 8, 8)]),
}


@pytest.mark.parametrize("fn, shapes", BATCHES.values(), ids=BATCHES)
def test_an_argument_takes_two_graphs_whichever_of_its_sizes_changes_first(fn, shapes):
    import tracework_capture as capture

    graphs = []
    compiled = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(fn)
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), fn(x))
    assert len(graphs) == 2


def row_and_device(x, y):
    with torch.device("meta"):
        return x[[y.shape[0] - 3, 1]]


def two_rows(x, y):
    return x[[y.shape[0] - 3, 1]]


def written_rows(x, y):
    x = x.clone()
    with torch.device("meta"):
        x[[y.shape[0] - 3, 1]] = 7.0
    return x


@pytest.mark.parametrize("f", [two_rows, row_and_device, written_rows])
def test_a_list_of_sizes_is_an_index_wherever_tensors_are_made_by_default(f):
    runner = Runner(dynamic=True)
    x = torch.randn(6, 2)
    for n in (4, 6, 8):
        torch.testing.assert_close(runner.call(f, x, torch.zeros(n)), f(x, torch.zeros(n)))
