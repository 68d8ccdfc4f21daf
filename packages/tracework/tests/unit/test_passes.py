"""Options that steer what graphs become: passes of the user's own, mode lite, the folder of texts and the picture of the graph after fusion."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
import tracework
import tracework_runtime as runtime
from tracework import assemble
from tracework.options import Options

aten = torch.ops.aten
BACKENDS = ("inductor", "aot_eager")


def f(x, w):
    return (torch.sin(x) * w).sum()


def inputs():
    return [torch.arange(12.0).reshape(3, 4).requires_grad_(), torch.full((3, 4), 0.5, requires_grad=True)]


def value_and_gradients(call):
    given = inputs()
    value = call(*given)
    value.backward()
    return [value.detach(), *(x.grad for x in given)]


def replaces(before, after):
    def change(graph):
        for node in graph.nodes:
            if node.op == "call_function" and node.target is before:
                node.target = after

    return change


def doubles_products(graph):
    """Puts a multiplication by two behind each product of the forward."""
    for node in list(graph.nodes):
        if node.target is aten.mul.Tensor and node.meta.get("phase", "forward") == "forward":
            with graph.inserting_after(node):
                doubled = graph.call_function(aten.mul.Tensor, (node, 2.0))
            node.replace_all_uses_with(doubled, delete_user_cb=lambda user, new=doubled: user is not new)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pass_on_the_captured_graph_is_differentiated(backend):
    call = tracework.compile(f, backend=backend, options={"pre_grad_custom_pass": replaces(torch.sin, torch.cos)})
    for got, wanted in zip(value_and_gradients(call), value_and_gradients(lambda x, w: (torch.cos(x) * w).sum()), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("option", ["joint_custom_pre_pass", "joint_custom_post_pass"])
def test_a_pass_on_the_joint_graph_sees_forward_and_backward(backend, option):
    seen = []

    def change(graph, is_inference):
        seen.append((is_inference, {node.target for node in graph.nodes}))
        doubles_products(graph)

    call = tracework.compile(f, backend=backend, options={option: change})
    value = value_and_gradients(call)[0]
    torch.testing.assert_close(value, 2 * f(*inputs()).detach())
    ((is_inference, targets),) = seen
    assert not is_inference and {aten.sin.default, aten.cos.default} <= targets  # the latter is of the backward
    with torch.no_grad():
        torch.testing.assert_close(call(*inputs()), 2 * f(*inputs()))
    assert seen[1][0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("option", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_pass_on_functional_graphs_is_called_for_each(backend, option):
    seen = []

    class Doubles:
        def __call__(self, graph, is_inference):
            seen.append(is_inference)
            if aten.sin.default in {node.target for node in graph.nodes}:
                doubles_products(graph)

        def uuid(self):
            return "doubles"

    call = tracework.compile(f, backend=backend, options={option: Doubles()})
    torch.testing.assert_close(value_and_gradients(call)[0], 2 * f(*inputs()).detach())
    assert seen == [False, False]


def test_passes_come_one_after_the_other_and_new_nodes_have_shapes():
    order = []

    def widens(graph):
        order.append("widens")
        for node in list(graph.nodes):
            if node.target is aten.sin.default:
                with graph.inserting_after(node):
                    wide = graph.call_function(aten.to.dtype, (node, torch.float64))
                node.replace_all_uses_with(wide, delete_user_cb=lambda user, new=wide: user is not new)

    def looks(graph):
        order.append("looks")

    options = {"post_grad_custom_pre_pass": [widens, looks], "post_grad_custom_post_pass": looks}
    got = tracework.compile(lambda x: torch.sin(x) + 1, options=options)(torch.ones(3))
    assert order == ["widens", "looks", "looks"]
    torch.testing.assert_close(got, torch.sin(torch.ones(3)).double() + 1)


def test_the_cache_knows_a_changed_pass(tmp_path):
    def run(**options):
        return tracework.compile(torch.sin, options={"cache_dir": str(tmp_path), **options})(torch.ones(3))

    torch.testing.assert_close(run(), torch.sin(torch.ones(3)))
    other = run(post_grad_custom_pre_pass=replaces(aten.sin.default, aten.cos.default))
    torch.testing.assert_close(other, torch.cos(torch.ones(3)))
    torch.testing.assert_close(run(), torch.sin(torch.ones(3)))


@pytest.mark.parametrize("option", ["pre_grad_custom_pass", "joint_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_pass_that_fails_is_named(option):
    def breaks(graph):
        raise KeyError("mine")

    with pytest.raises(tracework.CompileError, match=f"option {option} .*KeyError: 'mine'"):
        tracework.compile(f, options={option: breaks})(*inputs())


@pytest.mark.parametrize("given", [3, [print, 3], "torch.sin"])
def test_a_pass_is_a_function(given):
    with pytest.raises(tracework.InvalidArgument, match="a function of a graph"):
        tracework.compile(f, options={"pre_grad_custom_pass": given})


def test_mode_lite_calls_eager_kernels_alone():
    stages = []
    call = tracework.compile(f, mode="lite", observe=lambda stage, _: stages.append(stage))
    for got, wanted in zip(value_and_gradients(call), value_and_gradients(f), strict=True):
        assert torch.equal(got, wanted)
    assert set(stages) == {"aotautograd", "captured"}


def test_jobs_reach_the_builders():
    made = assemble.runtime_options(Options(jobs=3))
    assert (made.build_jobs, made.triton_workers) == (3, 3)
    assert assemble.runtime_options(Options()) == runtime.RuntimeOptions()
    with pytest.raises(tracework.InvalidArgument, match="a positive int"):
        tracework.compile(f, options={"jobs": 0})


def test_the_folder_of_texts_and_the_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path / "cache"))

    def g(x, w):
        return torch.softmax(torch.nn.functional.gelu(x @ w), -1), torch.linalg.inv(w)

    for _ in range(2):  # found in the cache, there is a picture too
        tracework.reset()
        call = tracework.compile(g, options={"trace.enabled": True, "trace.graph_diagram": True})
        call(torch.rand(4, 4), torch.eye(4))
    (folder,) = (tmp_path / "tracework_debug").iterdir()
    written = {path.name.partition("-")[2] for path in folder.iterdir()}
    assert {"captured.txt", "aotautograd.txt", "primops.txt", "inductor.svg", "inductor.dot", "runtime.txt"} <= written
    pictures = sorted(folder.glob("*-inductor.svg"))
    assert len(pictures) == 2
    root = ElementTree.parse(pictures[0]).getroot()
    texts = {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert any(t.startswith("mm") for t in texts) and any("erf" in t for t in texts) and any("linalg_inv_ex" in t for t in texts)
    assert all(any(t.startswith(what) for t in texts) for what in ("arg0", "float32[4, 4]", "output"))
    boxes = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert all(float(box.get("x")) + float(box.get("width")) <= float(root.get("width")) for box in boxes)
    text = Path(pictures[0]).with_suffix(".dot").read_text()
    assert text.count(" -> ") == len(root.findall("{http://www.w3.org/2000/svg}path")) > 4
    assert text.startswith("digraph") and text.count("[label=") >= len(boxes)


def test_a_pass_runs_once_for_gradients_that_are_compiled_for_other_settings():
    compiled = tracework.compile(f, options={"post_grad_custom_pre_pass": replaces(aten.mul.Tensor, aten.add.Tensor)})
    first = value_and_gradients(compiled)
    given = inputs()
    value = compiled(*given)
    torch.use_deterministic_algorithms(True)
    try:
        value.backward()
    finally:
        torch.use_deterministic_algorithms(False)
    for got, wanted in zip([value.detach(), *(x.grad for x in given)], first, strict=True):
        assert torch.equal(got, wanted)
