"""Convolutions of inference with packed weights: eager's values, NaNs included, whatever happens to the weights."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.passes.packed_convolution import pack_convolutions
from tracework_primops import prims as p

ONE = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
DEPTHWISE = ((2, 2), (1, 1), (1, 1), False, (0, 0), 8)
SIZES = {
    "x": (2, 3, 12, 12), "a": (8, 3, 3, 3), "a_bias": (8,), "mean": (8,), "var": (8,), "gain": (8,), "shift": (8,),
    "b": (8, 8, 3, 3), "c": (8, 1, 3, 3),
}  # fmt: skip


def tensors():
    made = torch.Generator().manual_seed(0)
    found = {k: torch.randn(s, generator=made) for k, s in SIZES.items()}
    found["var"].abs_().add_(0.5)
    return found


def normalised(y, mean, var, gain, shift):
    """A batch norm in evaluation, as it is decomposed."""
    scale = p.mul(p.rsqrt(p.add(var, 1e-5)), gain)
    mean, scale, shift = (p.reshape(v, (1, 8, 1, 1)) for v in (mean, scale, shift))
    return p.add(p.mul(p.sub(y, mean), scale), shift)


def hardswish(y):
    return p.div(p.mul(y, p.minimum(p.maximum(p.add(y, 3), 0), 6)), 6)


def network(x, a, a_bias, mean, var, gain, shift, b, c):
    y = hardswish(normalised(p.convolution(x, a, a_bias, *ONE), mean, var, gain, shift))
    z = p.relu(p.add(normalised(p.convolution(y, b, None, *ONE), mean, var, gain, shift), y))
    w = p.convolution(z, c, None, *DEPTHWISE)
    return p.mul(w, p.sigmoid(w))


def eager(x, a, a_bias, mean, var, gain, shift, b, c):
    """The same in torch."""

    def norm(y):
        return F.batch_norm(y, mean, var, gain, shift)

    y = F.hardswish(norm(F.conv2d(x, a, a_bias, padding=1)))
    z = F.relu(norm(F.conv2d(y, b, padding=1)) + y)
    return F.silu(F.conv2d(z, c, stride=2, padding=1, groups=8))


def graph_of(values, static=True):
    graph = build(network, list(values.values()))
    inputs = tuple(dataclasses.replace(i, is_static=static and n > 0) for n, i in enumerate(graph.inputs))
    return graph.replace(inputs=inputs)


def compiled(values):
    function = runtime.load(compile_graph(graph_of(values)))
    return lambda: function(list(values.values()))[0]


def close(got, expected) -> None:
    """Within what sums of 100 products of float32 differ by in another order, as a norm; NaNs in the same places."""
    assert torch.equal(got.isnan(), expected.isnan())
    got, expected = got.nan_to_num(), expected.nan_to_num()
    assert (got - expected).norm() <= 2e-6 * expected.norm()


def agrees(run, values):
    close(run(), eager(**values))


def test_normalisations_sums_and_activations_are_folded() -> None:
    text = pack_convolutions(graph_of(tensors())).text()
    assert text.count("packed_convolution(") == 3
    assert "'hardswish'" in text and "'swish'" in text
    assert "rsqrt(%" not in text and "add(%" not in text
    assert "relu(%" in text, "the library's relu turns NaN into 0"


def test_places_are_those_of_all_that_is_folded() -> None:
    graph = graph_of(tensors())
    for number, node in enumerate(graph.calls):
        node.meta["origin"] = f"lib/model.py:{number} in forward {node.target.name}"
    artifact = compile_graph(graph)
    steps = [step for step in artifact.notes["steps"] if step["name"] == "packed_convolution"]
    operators = [[place.split()[-1] for place in artifact.places_of(step)] for step in steps]
    assert operators == [["convolution", "add", "div"], ["convolution", "add", "add"], ["convolution", "mul"]]


def test_values() -> None:
    values = tensors()
    agrees(compiled(values), values)


@pytest.mark.parametrize("name", ["a", "a_bias", "mean", "var", "gain", "shift", "b", "c"])
def test_weights_changed_behind_the_version_counter_are_seen(name: str) -> None:
    values = tensors()
    run = compiled(values)
    agrees(run, values)
    before = values[name]._version
    values[name].numpy().reshape(-1)[-1] += 2.0
    assert values[name]._version == before
    agrees(run, values)


def test_other_tensors_with_the_same_values_and_back() -> None:
    values = tensors()
    run = compiled(values)
    agrees(run, values)
    first = dict(values)
    values["a"] = values["a"] * 3
    agrees(run, values)
    values.update(first)
    agrees(run, values)


def test_a_program_looks_once_at_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    values = tensors()
    run = compiled(values)
    for _ in range(2):  # what is packed, and that it stays so
        agrees(run, values)
    with monkeypatch.context() as patch:
        patch.setattr(runtime.packed.Packed, "_read", None)
        for _ in range(2):
            agrees(run, values)
    for name in ("c", "mean", "a"):
        values[name].data.reshape(-1)[-1] += 2.0
        agrees(run, values)
    first = dict(values)
    values["b"] = values["b"] * 3
    agrees(run, values)
    values.update(first)
    agrees(run, values)
    values["c"].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError):
        run()
    values["c"].untyped_storage().resize_(4 * values["c"].numel())
    values["c"].fill_(0.5)
    agrees(run, values)


def test_what_a_failed_call_did_not_read_is_read_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    values = tensors()
    run = compiled(values)
    agrees(run, values)
    values["c"].numpy().reshape(-1)[-1] += 2.0
    with monkeypatch.context() as patch:
        patch.setattr(runtime.packed.Packed, "_read", None)
        with pytest.raises(TypeError):
            run()
    agrees(run, values)


def test_nans_stay() -> None:
    values = tensors()
    values["x"][0, :, 2, 2] = float("nan")
    got, expected = compiled(values)(), eager(**values)
    assert expected.isnan().any()
    close(got, expected)


def test_weights_that_are_no_parameters_are_not_packed() -> None:
    graph = graph_of(tensors(), static=False)
    assert "packed_convolution" not in pack_convolutions(graph).text()


def test_weights_in_training_are_not_packed() -> None:
    graph = graph_of(tensors()).replace(role="forward")
    assert pack_convolutions(graph) is graph


def test_a_value_with_another_reader_is_not_folded() -> None:
    values = tensors()

    def two_readers(*args):
        y = p.convolution(args[0], args[1], args[2], *ONE)
        z = p.convolution(normalised(y, *args[3:7]), args[7], None, *ONE)
        return p.convolution(z, args[8], None, *DEPTHWISE), y

    graph = build(two_readers, list(values.values()))
    graph = graph.replace(inputs=tuple(dataclasses.replace(i, is_static=n > 0) for n, i in enumerate(graph.inputs)))
    got = runtime.load(compile_graph(graph))(list(values.values()))
    for a, e in zip(got, graph.run(*values.values()), strict=True):
        close(a, e)


def test_none_where_the_library_is_switched_off() -> None:
    values = tensors()
    artifact = compile_graph(graph_of(values), InductorOptions(packs=False))
    assert "packed_convolution" not in artifact.host_source
    close(runtime.load(artifact)(list(values.values()))[0], eager(**values))
