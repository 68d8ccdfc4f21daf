"""Linear layers of inference with packed weights: eager's values, NaNs and infinities included, whatever happens to the weights."""

import dataclasses
import gc
import os
import threading

import pytest
import torch
import torch.nn.functional as F
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import InductorOptions, _torch, compile_graph
from tracework_inductor.lowering import cpu_products
from tracework_inductor.passes import packed_linear
from tracework_inductor.passes.packed_linear import pack_linears
from tracework_primops import prims as p
from tracework_runtime import page_watch

ROWS, INNER, COLUMNS = 33, 75, 45
"""Nothing that a block of the library's layout divides."""


@pytest.fixture(autouse=True, params=["watched", "read"])
def small_ones_too(request, monkeypatch):
    watched = request.param == "watched"
    if watched and not page_watch.can_watch():
        pytest.skip("this kernel does not say what was written to")
    monkeypatch.setattr(packed_linear, "can_watch", lambda: watched)
    monkeypatch.setattr(packed_linear, "PAYS", dict.fromkeys(packed_linear.PAYS, (range(4, 100), 1)))
    monkeypatch.setattr(packed_linear, "PAYS_READ", {torch.float32: (range(4, 100), 1)})
    monkeypatch.setattr(cpu_products, "has_own_products", lambda: False)
    monkeypatch.setattr(runtime.packed, "LEAST_WATCHED", 1 if watched else 1 << 40)


def tensors(dtype=torch.float32, rows=ROWS):
    made = torch.Generator().manual_seed(0)
    sizes = {"x": (rows, INNER), "a": (COLUMNS, INNER), "a_bias": (COLUMNS,), "b": (COLUMNS, COLUMNS)}
    return {k: torch.randn(s, generator=made).to(dtype) for k, s in sizes.items()}


def network(x, a, a_bias, b):
    y = p.addmm(a_bias, x, p.permute(a, (1, 0)))
    return p.add(p.mm(p.relu(y), b), y)


def eager(x, a, a_bias, b):
    y = F.linear(x, a, a_bias)
    return F.relu(y) @ b + y


def graph_of(values, static=True, program=network):
    graph = build(program, list(values.values()))
    return graph.replace(inputs=tuple(dataclasses.replace(i, is_static=static and n > 0) for n, i in enumerate(graph.inputs)))


def compiled(values):
    artifact = compile_graph(graph_of(values))
    assert "packed_linear(packed_calls" in artifact.host_source
    function = runtime.load(artifact)
    return lambda: function(list(values.values()))[0]


def close(got, expected, limit=2e-6) -> None:
    """Within what sums of 100 products differ by in another order, as a norm; NaNs and infinities in the same places."""
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    finite = expected.isfinite()
    assert torch.equal(got[~finite], expected[~finite]) or torch.equal(got.isfinite(), finite)
    assert torch.equal(got.isnan(), expected.isnan())
    assert (got - expected)[finite].norm() <= limit * expected[finite].norm()


def agrees(run, values):
    close(run(), eager(**values))


def test_products_of_parameters_are_packed_with_their_bias() -> None:
    text = pack_linears(graph_of(tensors())).text()
    assert text.count("packed_linear(") == 2 and "mm(" not in text.replace("packed_linear(", "")
    assert "relu(%" in text, "the library's relu turns NaN into 0"


def test_values() -> None:
    values = tensors()
    agrees(compiled(values), values)


def test_values_of_bfloat16() -> None:
    if not packed_linear.can_watch() or not _torch.has_packed_linear(torch.bfloat16):
        pytest.skip("bfloat16 is not packed here")
    values = tensors(torch.bfloat16)
    run = compiled(values)
    for _ in range(3):
        close(run().float(), eager(**values).float(), 2**-8)
        values["a"].data.mul_(2)


def test_weights_that_are_cast() -> None:
    values = tensors()

    def program(x, a, a_bias, b):
        return p.addmm(a_bias, x, p.permute(p.convert(a, torch.float32), (1, 0)))

    values["a"] = values["a"].double()
    function = runtime.load(compile_graph(graph_of(values, program=program)))
    for _ in range(3):
        close(function(list(values.values()))[0], F.linear(values["x"], values["a"].float(), values["a_bias"]))
        values["a"].data.mul_(2)


def with_data(values, name):
    values[name].data.mul_(2)


def with_numpy(values, name):
    values[name].numpy().reshape(-1)[-1] += 2.0


def through_a_view(values, name):
    values[name].detach().view(-1)[3:4].add_(1)


def with_set_data(values, name):
    values[name].data = values[name].data * 3


def with_another_tensor(values, name):
    values[name] = values[name] + 1


def with_copy(values, name):
    values[name].copy_(torch.ones_like(values[name]))


def with_an_optimizer(values, name):
    values[name].grad = torch.ones_like(values[name])
    torch.optim.SGD([values[name]], lr=0.5).step()


def with_swap(values, name):
    other = values[name].clone().neg_()
    torch.utils.swap_tensors(values[name], other)


WRITES = [
    with_data, with_numpy, through_a_view, with_set_data, with_another_tensor, with_copy, with_an_optimizer, with_swap,
]  # fmt: skip


@pytest.mark.parametrize("name", ["a", "a_bias", "b"])
@pytest.mark.parametrize("write", WRITES)
def test_changed_weights_are_seen(write, name: str) -> None:
    values = tensors()
    run = compiled(values)
    for _ in range(6):
        for _ in range(3):
            agrees(run, values)
        write(values, name)
    agrees(run, values)


def test_other_tensors_with_the_same_values_and_back() -> None:
    values = tensors()
    run = compiled(values)
    first = dict(values)
    for changed in (values["a"] * 3, first["a"].clone(), first["a"]):
        values["a"] = changed
        agrees(run, values)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["x", "a", "a_bias", "b"])
def test_what_is_not_finite(name: str, value: float) -> None:
    values = tensors()
    values[name].view(-1)[-1] = value
    agrees(compiled(values), values)


REFUSED = {
    "weights that are no parameters": lambda: graph_of(tensors(), static=False),
    "training": lambda: graph_of(tensors()).replace(role="forward"),
    "float64": lambda: graph_of(tensors(torch.float64)),
    "few rows": lambda: graph_of(tensors(rows=2)),
    "a bias for each row": lambda: graph_of(
        {**tensors(), "a_bias": torch.ones(ROWS, 1), "b": torch.ones(())},
        program=lambda x, a, c, _: p.addmm(c, x, p.permute(a, (1, 0))),
    ),
    "a scaled product": lambda: graph_of(tensors(), program=lambda x, a, c, _: p.addmm(c, x, p.permute(a, (1, 0)), alpha=2)),
    "a scaled bias": lambda: graph_of(tensors(), program=lambda x, a, c, _: p.addmm(c, x, p.permute(a, (1, 0)), beta=0)),
}


@pytest.mark.parametrize("graph", REFUSED.values(), ids=REFUSED)
def test_what_is_not_packed(graph) -> None:
    graph = graph()
    assert pack_linears(graph) is graph


def test_none_where_the_library_is_switched_off() -> None:
    assert "packed_linear" not in compile_graph(graph_of(tensors()), InductorOptions(packs=False)).host_source


NONE = (range(0), 1)


@pytest.mark.parametrize("table", ["PAYS", "PAYS_READ"])
def test_none_of_little_work_or_other_rows(monkeypatch, table: str) -> None:
    other, work = {"PAYS": ("PAYS_READ", INNER * COLUMNS), "PAYS_READ": ("PAYS", ROWS * INNER * COLUMNS)}[table]
    monkeypatch.setattr(packed_linear, "can_watch", lambda: True)
    monkeypatch.setattr(packed_linear, other, dict.fromkeys(packed_linear.PAYS, NONE))
    for rows, least, count in ((ROWS, work, 1), (ROWS, work + 1, 0), (ROWS - 1, 1, 0), (ROWS + 1, 1, 0)):
        monkeypatch.setattr(packed_linear, table, {torch.float32: (range(rows, rows + 1), least)})
        assert pack_linears(graph_of(tensors())).text().count("packed_linear(") == count


def test_two_functions_of_the_same_weights_share_what_is_packed() -> None:
    before = runtime.packed_bytes()
    values = tensors()
    first, more_rows = compiled(values), {**values, "x": torch.randn(64, INNER)}
    first()
    once = runtime.packed_bytes() - before
    assert once >= 4 * (COLUMNS * INNER + COLUMNS * COLUMNS)
    second = compiled(more_rows)
    agrees(second, more_rows)
    assert runtime.packed_bytes() - before == once
    values["a"].data.mul_(2)
    agrees(second, more_rows)
    agrees(first, values)
    assert runtime.packed_bytes() - before == once


def test_what_is_packed_ends_with_the_function_or_the_weights() -> None:
    before = runtime.packed_bytes()
    values = tensors()
    run = compiled(values)
    run()
    assert runtime.packed_bytes() > before
    x = values["x"]
    values.clear()
    gc.collect()
    assert runtime.packed_bytes() == before
    values.update({**tensors(), "x": x})
    agrees(run, values)
    assert runtime.packed_bytes() > before
    del run
    gc.collect()
    assert runtime.packed_bytes() == before


@pytest.mark.parametrize("name", ["a", "b"])
def test_weights_whose_memory_was_given_back_for_a_while(name: str) -> None:
    values = tensors()
    run = compiled(values)
    for _ in range(3):
        agrees(run, values)
    kept, storage = values[name].clone(), values[name].untyped_storage()
    storage.resize_(0)
    with pytest.raises(RuntimeError):
        eager(**values)
    with pytest.raises(RuntimeError):
        run()
    storage.resize_(kept.nbytes)
    values[name].copy_(kept.mul_(2))
    for _ in range(3):
        agrees(run, values)


def cannot_tell(tensor: torch.Tensor) -> bool:
    raise RuntimeError("a forked process has no CUDA")


@pytest.mark.parametrize("is_pinned", [lambda tensor: True, cannot_tell])
def test_pinned_weights_are_read_and_not_watched(is_pinned, monkeypatch) -> None:
    """Of which a device may have the pages."""
    values = tensors()
    run = compiled(values)
    monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
    monkeypatch.setattr(runtime.packed, "watch", lambda *args: pytest.fail("watched"))
    for _ in range(3):
        agrees(run, values)
        values["a"].data.mul_(2)


def test_what_is_packed_is_bounded(monkeypatch) -> None:
    before = runtime.packed_bytes()
    values = tensors()
    run = compiled(values)
    monkeypatch.setattr(runtime.packed, "most_bytes", lambda: before + 4 * COLUMNS * INNER + 4 * 16 * COLUMNS)
    for _ in range(3):
        agrees(run, values)
        values["a"].data.mul_(2)
        values["b"].data.mul_(2)
    assert before < runtime.packed_bytes() <= runtime.packed.most_bytes()
    monkeypatch.setattr(runtime.packed, "most_bytes", lambda: 0)
    run = compiled(values)
    for _ in range(3):
        agrees(run, values)
        values["a"].data.mul_(2)
        values["b"].data.mul_(2)


def test_weights_that_stay_are_packed_once(monkeypatch) -> None:
    values, calls = {k: torch.nn.Parameter(v, requires_grad=False) for k, v in tensors().items()}, []
    monkeypatch.setattr(
        runtime.packed.Linear, "pack", lambda *args, pack=runtime.packed.Linear.pack: calls.append(1) or pack(*args)
    )
    run = compiled(values)
    for _ in range(3):
        run()
        gc.collect()
    assert len(calls) == 2


def test_threads() -> None:
    values = tensors()
    run, failures = compiled(values), []

    def call():
        try:
            for _ in range(20):
                agrees(run, values)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_process() -> None:
    values = tensors()
    run = compiled(values)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                values["a"].data.mul_(2)
                agrees(run, values)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        agrees(run, values)
    finally:
        torch.set_num_threads(threads)
