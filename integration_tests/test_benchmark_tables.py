"""Tables of results, and the limit beside them."""

import json

import pytest
import torch

from benchmarks import distributed, limit, tables

ABOUT = {"machine": "M", "torch": "2", "triton": "3", "commit": "c", "date": "d", "command": "--steps both"}


def row(model, training, **seconds):
    ways = {name.replace("_", "."): {"step_s": s, "cold_s": 2 * s, "peak_bytes": 1} for name, s in seconds.items()}
    return {"model": model, "training": training, "ways": ways, "limit_s": 0.5}


@pytest.fixture
def run(tmp_path):
    rows = [
        row("a", False, eager=4.0, torch_compile=2.0, tracework=1.0),
        row("b", False, eager=1.0, torch_compile=1.0, tracework=1.0),
        {"model": "c", "training": True, "failed": "RuntimeError: no"},
    ]
    (tmp_path / "models.jsonl").write_text("\n".join(map(json.dumps, [ABOUT, *rows])))
    return tables.Run.read(tmp_path)


def test_a_row_has_speed_ups_ratio_and_share_of_the_limit(run):
    lines = tables.models_table(run.parts()["inference"]).splitlines()
    assert lines[2] == "| a | 4000.00 | 2.00 | 4.00 | 2.00 | 0.50 | 1.00 | 2.0, 4.0 |"
    assert lines[-1] == "| geometric mean |  | 1.41 | 2.00 | 1.41 | 0.50 | 1.00 |  |"


def test_a_failed_row_has_no_figures(run):
    assert tables.models_table(run.parts()["training"]).splitlines()[2] == "| c | - |"


def test_sizes_of_batches_have_tables_of_their_own(run):
    seconds = {"eager": 2.0, "torch.compile": 2.0, "torch.compile:freezing": 1.5, "tracework": 1.0}
    large = tables.Step("a", False, 8, seconds, {}, None, {})
    parts = tables.Run(run.folder, run.about, (*run.steps, large)).parts()
    assert list(parts) == ["inference", "inference, batch 8", "training"]
    head, _, row, *_ = tables.models_table(parts["inference, batch 8"]).splitlines()
    assert head.split(" | ")[-1] == "over its freezing |" and row.endswith("| 1.00 | 1.33 | 2.00 | 2.00 | 1.50 |")


def test_the_headline_counts_models_that_both_systems_ran(run):
    assert "| M | inference | 2 | 1.41 | 2.00 | 1.41 | 1.00 |" in tables.headline([run])
    assert "training" not in tables.headline([run])


def test_products_of_a_step_are_counted_with_their_backward():
    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    found = limit.products_of(lambda: layer(layer(x)).sum().backward())
    names = {}
    for product, count in found.items():
        name = product.op.overloadpacket.__name__
        names[name] = names.get(name, 0) + count
    assert names == {"addmm": 2, "mm": 3}


@pytest.mark.parametrize(
    "step",
    [
        lambda: torch.nn.functional.conv2d(torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)),
        lambda: torch.nn.functional.linear(torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)),
    ],
    ids=["convolution", "linear"],
)
def test_candidates_compute_the_same_product(step, monkeypatch):
    made = {}

    def make(operand):
        """The same values for the same operand."""
        if operand not in made:
            made[operand] = torch.randn(operand.sizes).as_strided(operand.sizes, operand.strides)
        return made[operand]

    (product,) = limit.products_of(step)
    monkeypatch.setattr(limit.Operand, "make", make)
    with torch.no_grad():
        expected, *others = [candidate(product)() for candidate in limit.candidates(product, "cpu")]
    assert others
    for other in others:
        torch.testing.assert_close(other, expected)


def test_a_product_of_odd_sizes_is_timed_with_aligned_ones_in_its_order_of_axes():
    a, weight, bias = torch.randn(6, 10), torch.randn(7, 10), torch.randn(7)
    (product,) = limit.products_of(lambda: torch.addmm(bias, a, weight.t()))
    assert limit.aligned in limit.candidates(product, "cuda")
    found = limit.aligned(product)()
    assert (found.shape, found.stride()) == ((8, 8), (8, 1))


def test_layers_that_are_one_operator_are_counted_by_their_products():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        found = limit.products_of(lambda: layer(torch.randn(1, 4, 8)))
    assert sum(count for product, count in found.items() if product.op.overloadpacket.__name__ == "addmm") == 4
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("spans", "others", "share"),
    [
        ([(0, 2)], [(1, 3)], 0.5),
        ([(0, 2), (1, 4)], [(0, 4)], 1.0),
        ([(0, 1), (2, 3)], [(1, 2)], 0.0),
        ([(0, 10)], [(1, 2), (1, 3), (8, 12)], 0.4),
    ],
)
def test_how_much_of_the_collectives_lies_under_other_kernels(spans, others, share):
    assert distributed.share_covered(spans, others) == pytest.approx(share)


@pytest.mark.parametrize("name", distributed.MODELS)
def test_models_of_the_distributed_benchmark_are_causal(name):
    sizes = distributed.Sizes(layers=2, width=128, vocabulary=50, batch=2, length=8)
    model = distributed.MODELS[name](sizes)
    tokens = torch.randint(0, 50, (2, 8))
    later = torch.cat((tokens[:, :5], (tokens[:, 5:] + 1) % 50), dim=1)
    torch.testing.assert_close(model(later)[:, :5], model(tokens)[:, :5])
    assert not torch.allclose(model(later)[:, 5:], model(tokens)[:, 5:])
