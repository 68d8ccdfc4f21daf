"""What explain prints: ten lines, with what matters first; and of what."""

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
import tracework
import tracework_capture as capture
import tracework_runtime as runtime
from torch.nn.attention.flex_attention import flex_attention
from tracework import dump, explanation

X = torch.ones(3)


def printing(times, folder):
    """A function that breaks `times` times, once a line."""
    file = folder / "printing.py"
    file.write_text("def prints(x, left):\n" + "    x = left(x.sin())\n" * times + "    return x + 1\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["prints"]


@torch.compiler.disable
def left(x):
    return x


def whole(x):
    return (x @ x.T).sin() + 1


class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin() + 1


def in_place():
    net = Net()
    tracework.compile_in_place(net)
    return net


def in_place_with(function, **arguments):
    class Calls(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    net = Calls()
    tracework.compile_in_place(net, **arguments)
    return net


OF_COMPILED = {
    "function": lambda: tracework.compile(whole),
    "module": lambda: tracework.compile(Net()),
    "in place": in_place,
    "method": lambda: tracework.compile(Net().forward),
    "plain": lambda: whole,
}


@pytest.mark.parametrize("kind", OF_COMPILED)
def test_what_is_compiled_already_is_explained(kind):
    fn = OF_COMPILED[kind]()
    fn(torch.ones(3, 3))
    found = tracework.explain(fn)(torch.ones(3, 3))
    assert found.graphs == 1 and found.capture.operations and not found.capture.breaks
    assert str(found).startswith("graphs: 1 (") and len(str(found).splitlines()) == 3


def test_kernels_and_stages_are_named():
    found = tracework.explain(whole)(torch.ones(3, 3))
    assert found.kernels == 1 and found.library == ("aten::mm",)
    first, second, _ = str(found).splitlines()
    assert first.endswith("kernels: 1 generated, library: mm") and second.startswith("compiled in ")
    assert {"capture", "aotautograd", "primops", "inductor", "runtime"} == set(found.seconds)
    assert all(name in second for name in found.seconds)


@pytest.mark.parametrize("breaks", [1, 5, 7, 8, 20])
def test_ten_lines_are_printed_and_the_rest_is_in_full(breaks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = tracework.explain(printing(breaks, tmp_path), backend="eager")(X, left)
    lines = str(found).splitlines()
    assert len(found.capture.breaks) == breaks and len(lines) == min(breaks + 3, explanation.LINES)
    shown = min(breaks, 7 if breaks <= 7 else 6)
    assert f"breaks: {breaks}," in lines[0]
    for number, line in enumerate(lines[2 : 2 + shown]):
        assert line.startswith(f"break at printing.py:{number + 2} (") and "; try: " in line
    assert (f"and {breaks - 6} more" in lines) == (breaks > 7)
    assert len(found.full().splitlines()) > breaks * 5 and str(found.capture) in found.full()


def test_what_runs_uncompiled_comes_first():
    def stays(x):
        return left(x.relu_()) + 1

    with pytest.warns(tracework.UncompiledWarning):

        def backend(gm, inputs):
            capture.report_uncompiled("it was asked for", "here.py:3")
            return gm.forward

        found = tracework.explain(stays, backend=backend)(X.clone())
    assert str(found).splitlines()[2] == "uncompiled at here.py:3: it was asked for"


def test_a_frame_without_graphs_says_why():
    assert "no tensor operations" in str(tracework.explain(lambda x: x.shape)(X))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "function",
    [torch.sin, torch.nn.functional.relu, functools.partial(torch.add, alpha=2, other=1), torch.nn.ReLU()],
    ids=["a builtin", "a function", "a partial", "a module"],
)
def test_what_compile_takes_is_explained(function, compiled):
    report = tracework.explain(tracework.compile(function) if compiled else function)(torch.ones(2))
    assert str(report).startswith("graphs: 1 (1 operations), breaks: 0")


def test_attention_that_computes_all_scores_says_why(monkeypatch):
    """As on a GPU: what the kernel of flex_attention takes is not said."""
    monkeypatch.setattr("tracework_inductor.ATTENTION_DEVICES", frozenset({"cpu"}))
    x = torch.randn(1, 2, 9, 8)
    for inputs, said in ((x, 0), (x.double(), 1)):
        found = tracework.explain(lambda q: flex_attention(q, q, q))(inputs)
        lines = [line for line in str(found).splitlines() if line.startswith("attention computes all scores:")]
        assert len(lines) == said and all("other dtypes" in line for line in lines)
        assert sum("attention computes all scores:" in line for line in found.full().splitlines()) == said


def test_what_kernels_were_chosen_from_is_in_the_full_text():
    lines = ["takes pointwise XBLOCK=512, measured 3.0 us", "  not pointwise XBLOCK=1024, measured 4.0 us"]
    tally = dump.Tally()
    tally("inductor", runtime.Artifact("a" * 64, "", notes={"choices": {"cuda_kernel0": lines}}))
    report = tracework.explain(whole)(torch.ones(3, 3)).capture
    found = explanation.Explanation(report, 1, 1, choices=tuple(tally.choices))
    assert [f"cuda_kernel0 {line}" for line in lines] == [line for line in found.full().splitlines() if "pointwise" in line]
    assert "pointwise" not in str(found)


LIBRARY = torch.library.Library("explained", "DEF")
LIBRARY.define("thrice(Tensor x) -> Tensor")
LIBRARY.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")


def test_what_is_not_stored_and_why():
    x, thrice = torch.ones(3), torch.ops.explained.thrice.default  # which has no fake in Python
    said = tracework.explain(lambda x: thrice(x).sum())(x)
    (line,) = [line for line in str(said).splitlines() if line.startswith("not stored")]
    assert "explained.thrice" in line and "test_explanation.py" in line
    assert "not stored" not in str(tracework.explain(lambda x: x.sum())(x))
    assert "not stored" not in str(tracework.explain(lambda x: thrice(x).sum(), backend="aot_eager")(x))


def test_what_runs_as_it_is_between_compiled_parts():
    said = tracework.explain(lambda x: torch.unique(x).sum() + x.sin())(torch.ones(3))
    (line,) = [line for line in str(said).splitlines() if line.startswith("runs between compiled parts: unique runs as it is")]
    assert line in said.full() and "test_explanation.py" in line
    said = tracework.explain(torch.nn.GRU(4, 8))(torch.ones(5, 2, 4))
    assert "runs between compiled parts: gru runs as it is" in str(said)


def dropped(x, w):
    return (F.gelu(F.dropout(x @ w, 0.5)).softmax(-1) @ w.T).square().sum()


@pytest.mark.parametrize("form", [tracework.compile, in_place_with], ids=["function", "in place"])
def test_what_a_memory_budget_came_to_is_a_line(form):
    fn = form(dropped, options={"memory_budget": 0.5})
    args = [torch.randn(64, 64, requires_grad=True) for _ in range(2)]
    found = tracework.explain(fn)(*args)
    (line,) = found.budgets
    assert line.startswith("memory_budget=0.5: of ") and line in str(found) and line in found.full()
    assert not tracework.explain(dropped)(*args).budgets


def test_a_memory_budget_that_cannot_be_met_is_told():
    args = [torch.randn(64, 64, requires_grad=True) for _ in range(2)]
    with pytest.warns(UserWarning, match="memory_budget=0.01: .*, the fewest possible; ") as told:
        tracework.compile(dropped, backend="aot_eager", options={"memory_budget": 0.01})(*args)
    assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():  # of 0 the fewest are meant
        warnings.simplefilter("error")
        tracework.compile(dropped, backend="aot_eager", options={"memory_budget": 0.0})(*args)
