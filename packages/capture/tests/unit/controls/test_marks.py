"""Marked functions: what a call of one does in captured code, and which marks are refused."""

import binascii
import zlib
from dataclasses import dataclass

import pytest
import torch
import torch._dynamo as dynamo
import tracework_capture as capture
from tracework_capture import errors, marks


def compiled(function, graphs=None, **options):
    """`function` with a backend that runs the graph and remembers it."""

    def backend(gm, example_inputs):
        if graphs is not None:
            graphs.append(gm)
        return gm.forward

    return capture.optimize(backend, **options)(function)


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


X = torch.arange(3.0)


def test_allow_in_graph_makes_one_node():
    @marks.allow_in_graph
    def opaque(x, ys, k=2):
        return x * k + ys[0], ys[1]

    def f(x):
        a, b = opaque(x + 1, [x, x * 2], k=3)
        return a + b

    graphs = []
    assert torch.equal(compiled(f, graphs, fullgraph=True)(X), f(X))
    assert opaque in targets(graphs[0])


@pytest.mark.parametrize("control", [marks.allow_in_graph, dynamo.allow_in_graph])
def test_allow_in_graph_of_an_autograd_function(control):
    @control
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 5

    x = X.clone().requires_grad_()
    compiled(lambda x: Doubled.apply(x) + 1, fullgraph=True)(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 5.0))


def test_assume_constant_result_calls_once():
    calls = []

    @marks.assume_constant_result
    def scale(n):
        calls.append(n)
        return torch.tensor(3.0)

    call = compiled(lambda x: x * scale(2), fullgraph=True)
    assert torch.equal(call(X), X * 3) and torch.equal(call(X), X * 3)
    assert calls == [2]


def test_assume_constant_result_of_methods_and_modules():
    class Scaled(torch.nn.Module):
        factors = {"a": 3}

        @marks.assume_constant_result
        def factor(self, name):
            return self.factors[name] + self.training

        def forward(self, x):
            return x * self.factor("a")

    @marks.assume_constant_result
    def width(module):
        return module.in_features

    linear = torch.nn.Linear(3, 3)
    assert torch.equal(compiled(Scaled(), fullgraph=True)(X), X * 4)
    call = compiled(lambda m, x: x * width(m), fullgraph=True)
    assert torch.equal(call(linear, X), X * 3) and torch.equal(call(torch.nn.Linear(5, 3), X), X * 5)


def test_assume_constant_result_after_a_change_breaks():
    class Counter:
        count = 1

        @marks.assume_constant_result
        def read(self):
            return self.count

    def f(counter, x):
        counter.count = 5
        return x * counter.read() + 1

    assert torch.equal(compiled(f)(Counter(), X), X * 5 + 1)


def test_assume_constant_result_of_a_new_tensor_breaks():
    @marks.assume_constant_result
    def scale(t):
        return 2

    with pytest.raises(errors.Unsupported, match="argument_not_real"):
        compiled(lambda x: x * scale(x + 1), fullgraph=True)(X)


def test_disallow_in_graph_breaks():
    @marks.disallow_in_graph
    def helper(x):
        return x * 2

    graphs = []
    assert torch.equal(compiled(lambda x: helper(x + 1) + 1, graphs)(X), (X + 1) * 2 + 1)
    assert len(graphs) == 3  # before, the helper by itself, after


def test_forbid_in_graph_names_the_call():
    @marks.forbid_in_graph
    def forbidden():
        return None

    def f(x):
        forbidden()
        return x + 1

    with pytest.raises(errors.ForbiddenCall, match=r"forbidden must not be called[\s\S]*forbidden\(\)\n\s*\^+\n[\s\S]*try: "):
        compiled(f)(X)


def test_substitute_in_graph_is_traced_and_the_original_runs_outside():
    ran = []

    def original(values, wanted):
        ran.append(wanted)
        return values.index(wanted)

    @marks.substitute_in_graph(original)
    def find(values, wanted):
        for i, value in enumerate(values):
            if value == wanted:
                return i
        raise ValueError(wanted)

    assert compiled(lambda values, x: x + original(values, 3), fullgraph=True)([1, 2, 3], X).tolist() == [2.0, 3.0, 4.0]
    assert not ran and find([7], 7) == 0 and ran == [7]


def test_a_substitute_may_fold_constants():
    ran = []

    def original(n):
        ran.append(n)
        return n + 1

    @marks.substitute_in_graph(original, can_constant_fold_through=True)
    def traceable(n):
        raise AssertionError("not traced")

    assert torch.equal(compiled(lambda x: x + original(4), fullgraph=True)(X), X + 5) and ran == [4]


@dataclass
class Pair:
    first: torch.Tensor
    second: int


torch.utils._pytree.register_dataclass(Pair)


@marks.nonstrict_trace
def structured(model, pair, named):
    return {"y": model(pair.first) * pair.second + named["z"][0], "n": [pair.first, 3]}, Pair(pair.first + 1, 7)


def test_nonstrict_trace_takes_structures_and_modules():
    model = torch.nn.Linear(3, 3)

    def f(m, x):
        out, pair = structured(m, Pair(x + 1, 2), {"z": (x,)})
        return out["y"] + out["n"][0] + out["n"][1] + pair.first * pair.second

    graphs = []
    result = compiled(f, graphs, fullgraph=True)(model, X)
    expected = f(model, X)
    assert torch.equal(result, expected)
    assert any(getattr(t, "__name__", "") == "structured" for t in targets(graphs[0]))
    gradients = torch.autograd.grad(result.sum(), model.weight)[0], torch.autograd.grad(expected.sum(), model.weight)[0]
    assert torch.equal(*gradients)


WEIGHT = torch.nn.Parameter(torch.full((3,), 2.0))


def test_nonstrict_trace_of_a_function_that_reaches_tensors_by_itself():
    """They are inputs of the node: gradients reach them, and what they hold may change."""
    model = torch.nn.Linear(3, 3)

    @marks.nonstrict_trace
    def loose(x):
        return model(x) * WEIGHT

    call = compiled(lambda x: loose(x + 1) * 2, fullgraph=True)
    reached = [WEIGHT, *model.parameters()]
    for change in (0.0, 1.5):
        with torch.no_grad():
            WEIGHT.add_(change)
        found, wanted = call(X), loose(X + 1) * 2
        assert torch.equal(found, wanted)
        for a, b in zip(torch.autograd.grad(found.sum(), reached), torch.autograd.grad(wanted.sum(), reached), strict=True):
            assert torch.equal(a, b)


def test_nonstrict_trace_notices_the_mode_of_a_module():
    @marks.nonstrict_trace
    def dropped(model, x):
        return model(x)

    model = torch.nn.Dropout(1.0)
    call = compiled(lambda m, x: dropped(m, x) + 1, fullgraph=True)
    assert torch.equal(call(model, X), torch.ones(3))
    model.eval()
    assert torch.equal(call(model, X), X + 1)


def test_step_unsupported_leaves_the_rest_to_python():
    def f(x):
        y = x + 1
        capture.step_unsupported()
        z = y * 2
        return z + 1

    graphs = []
    assert torch.equal(compiled(f, graphs)(X), f(X))
    assert len(graphs) == 1


class TestMarksOfTorchCompile:
    """Third-party code is decorated with torch.compile's decorators."""

    def test_graph_break_and_step_unsupported(self):
        def f(x):
            y = x + 1
            dynamo.graph_break()
            z = y * 2
            dynamo.step_unsupported()
            return z + 1

        graphs = []
        assert torch.equal(compiled(f, graphs)(X), f(X))
        assert len(graphs) == 2

    def test_allow_in_graph_and_nonstrict_trace(self):
        @dynamo.allow_in_graph
        def opaque(x):
            return x * 3

        @dynamo.nonstrict_trace
        def loose(d):
            return d["x"] * 2

        graphs = []
        assert torch.equal(compiled(lambda x: loose({"x": opaque(x)}), graphs, fullgraph=True)(X), X * 6)
        assert [getattr(t, "__name__", None) for t in targets(graphs[0])][:2] == ["opaque", "loose"]

    def test_assume_constant_result_and_forbid_in_graph(self):
        calls = []

        @torch.compiler.assume_constant_result
        def two():
            calls.append(1)
            return 2

        @dynamo.forbid_in_graph
        def forbidden():
            return None

        call = compiled(lambda x: x * two(), fullgraph=True)
        assert torch.equal(call(X), X * 2) and torch.equal(call(X), X * 2) and calls == [1]
        with pytest.raises(errors.ForbiddenCall, match="forbidden"):
            compiled(lambda x: (forbidden(), x)[1] + 1)(X)

    def test_disable_says_its_reason_and_need_not_be_recursive(self):
        def inner(x):
            return x * 5

        @torch.compiler.disable(recursive=False, reason="because of the weather")
        def outer(x):
            return inner(x) + 1

        @torch.compiler.disable
        def all_plain(x):
            return inner(x) + 1

        graphs = []
        assert torch.equal(compiled(lambda x: outer(x + 1), graphs)(X), (X + 1) * 5 + 1)
        assert len(graphs) == 2  # before the call, and inner
        graphs.clear()
        assert torch.equal(compiled(lambda x: all_plain(x + 1), graphs)(X), (X + 1) * 5 + 1)
        assert len(graphs) == 1
        with pytest.raises(errors.Unsupported, match="because of the weather"):
            compiled(lambda x: outer(x + 1), fullgraph=True)(X)

    def test_substitute_in_graph(self):
        @torch.compiler.substitute_in_graph(binascii.crc_hqx)
        def crc_hqx(data, crc, /):
            for byte in data:
                crc = crc + byte
            return crc

        assert torch.equal(compiled(lambda x: x + crc_hqx(b"ab", 3), fullgraph=True)(X), X + 3 + 97 + 98)

    def test_substitutes_of_third_parties_are_traced_for_the_original(self):
        def original(a, b=2):
            raise AssertionError("not traced")

        @torch.compiler.substitute_in_graph(original)
        def traceable(a, b=2):
            return a * b

        @torch.compiler.substitute_in_graph(zlib.adler32, can_constant_fold_through=True, skip_signature_check=True)
        def adler32(data):
            raise AssertionError("not traced")

        call = compiled(lambda x: original(x, 5) + zlib.adler32(b"a") % 7, fullgraph=True)
        assert torch.equal(call(X), X * 5 + zlib.adler32(b"a") % 7)
        with pytest.raises(AssertionError, match="not traced"):
            traceable(X)


class TestMisuse:
    """Errors say what to do instead."""

    @pytest.mark.parametrize("control", [marks.allow_in_graph, marks.forbid_in_graph, marks.nonstrict_trace])
    def test_not_a_function(self, control):
        with pytest.raises(errors.ControlMisuse, match="Give it the function"):
            control(3)
        with pytest.raises(errors.ControlMisuse, match="on the function in the class"):
            control(torch.nn.Linear(1, 1).forward)

    def test_results_of_allow_in_graph(self):
        @marks.allow_in_graph
        def named(x):
            return {"x": x * 2}

        with pytest.raises(errors.Unsupported, match="gives a dict; .*nonstrict_trace"):
            compiled(lambda x: named(x)["x"] + 1, fullgraph=True)(X)

    def test_two_marks(self):
        @marks.allow_in_graph
        def f(x):
            return x

        assert marks.allow_in_graph([f]) == [f]
        with pytest.raises(errors.ControlMisuse, match="Keep one"):
            marks.forbid_in_graph(f)

    def test_substitutes(self):
        def original(a, b):
            return a

        with pytest.raises(errors.ControlMisuse, match="skip_signature_check"):
            marks.substitute_in_graph(original)(lambda a: a)
        marks.substitute_in_graph(original, skip_signature_check=True)(lambda a: a)
        with pytest.raises(errors.ControlMisuse, match="already"):
            marks.substitute_in_graph(original)
        with pytest.raises(errors.ControlMisuse, match="not a class|For a class"):
            marks.substitute_in_graph(int)

    def test_marks_die_with_their_functions(self):
        def f(x):
            return x

        marks.allow_in_graph(f)
        number = id(f)
        assert number in marks._marked
        del f
        assert number not in marks._marked
