"""Marks on tensors: how often functions are compiled over several sizes, and what cannot be marked."""

import pytest
import torch
import torch._dynamo as dynamo
import tracework_capture as capture
from counted_graphs import compiled
from tracework_capture import dims, errors


def plus_one(x):
    return x + 1


def decides(x):
    return x + 1 if x.shape[0] > 4 else x - 1


def fixes(x):
    return x + 1 if x.shape[0] == 3 else x - 1


def count(function, mark, sizes, **options):
    call, graphs = compiled(function, **options)
    for n in sizes:
        x = torch.ones(n, 3)
        mark(x)
        assert torch.equal(call(x), function(x))
    return len(graphs)


@pytest.mark.parametrize(
    ("mark", "sizes", "options", "wanted"),
    [
        (lambda x: None, (3, 4, 5), {}, 2),
        (lambda x: capture.mark_dynamic(x, 0), (3, 4, 5, 8), {}, 1),
        (lambda x: capture.mark_dynamic(x, [0, -1]), (3, 4, 5, 8), {}, 1),
        (lambda x: capture.mark_dynamic(x, 0), (3, 4, 5), {"dynamic": False}, 1),
        (lambda x: capture.mark_dynamic(x, 0, min=3, max=6), (3, 4, 5, 6), {}, 1),
        (lambda x: capture.maybe_mark_dynamic(x, 0), (1, 4, 5, 6), {}, 2),
        (lambda x: capture.mark_static(x, 0), (3, 4, 5, 6), {"dynamic": True}, 4),
        (lambda x: capture.mark_static(x), (3, 4), {"dynamic": True}, 2),
        (lambda x: capture.mark_unbacked(x, 0), (3, 4, 5, 6), {}, 1),
        (lambda x: capture.mark_unbacked(x, 0), (1, 0, 3, 4, 5, 1), {}, 3),
        (lambda x: dynamo.mark_dynamic(x, 0, min=2, max=9), (3, 4, 5, 8), {}, 1),
        (lambda x: dynamo.maybe_mark_dynamic(x, 0), (3, 4, 5), {}, 1),
        (lambda x: dynamo.mark_static(x, 0), (3, 4, 5), {"dynamic": True}, 3),
        (lambda x: dynamo.decorators.mark_unbacked(x, 0), (3, 4, 5), {}, 1),
    ],
)
def test_how_often_it_compiles(mark, sizes, options, wanted):
    assert count(plus_one, mark, sizes, **options) == wanted


def test_a_range_answers_questions_and_is_guarded():
    call, graphs = compiled(decides)
    x = torch.ones(6, 3)
    capture.mark_dynamic(x, 0, min=5, max=9)
    call(x)
    for n in (5, 9):
        call(torch.ones(n, 3))
    assert len(graphs) == 1
    assert torch.equal(call(torch.ones(3, 3)), decides(torch.ones(3, 3))) and len(graphs) == 2


def test_a_group_has_one_size():
    call, graphs = compiled(lambda x, y: x + y)
    x, y = torch.ones(3, 2), torch.ones(3, 2)
    capture.mark_unbacked(x, 0, shape_id="batch")
    capture.mark_unbacked(y, 0, shape_id="batch")
    call(x, y)
    call(torch.ones(5, 2), torch.ones(5, 2))
    assert len(graphs) == 1
    call(torch.ones(5, 2), torch.ones(1, 2))
    assert len(graphs) == 2


def test_the_address_may_be_guarded():
    call, graphs = compiled(plus_one)
    x = torch.ones(3)
    capture.mark_static_address(x, guard=True)
    call(x)
    call(x)
    assert len(graphs) == 1
    assert next(n for n in graphs[0].graph.nodes if n.op == "placeholder").meta["binding"].is_static
    call(x.clone())
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("function", "mark", "words"),
    [
        (fixes, lambda x: capture.mark_dynamic(x, 0), "marked dynamic, but the program fixes it to 3: s0 == 3"),
        (fixes, lambda x: capture.mark_unbacked(x, 0), "marked unbacked, but the program fixes it to 3"),
        (decides, lambda x: capture.mark_unbacked(x, 0), "marked unbacked, but the program decides on it"),
    ],
)
def test_marked_dims_stay_open_or_it_is_an_error(function, mark, words):
    with pytest.raises(errors.DynamicDimError, match=rf"dim 0 of x is {words}[\s\S]*test_dims.py:\d+[\s\S]*try: "):
        count(function, mark, (3,))


def checked(x):
    torch._check(x.shape[0] > 2)
    torch._check(x.shape[0] < 100, lambda: f"too many: {x.shape[0]}")
    return x + 1 if x.shape[0] > 1 else x


def test_what_the_program_states_is_no_decision():
    assert count(checked, lambda x: capture.mark_unbacked(x, 0), (3, 4, 50)) == 1
    with pytest.raises(RuntimeError, match="too many: 100"):
        compiled(checked)[0](torch.ones(100, 3))


def test_sizes_0_and_1_that_are_marked_are_compiled_by_themselves():
    assert count(plus_one, lambda x: capture.mark_dynamic(x, 0), (1, 2, 5, 1, 0, 7)) == 3


def test_a_demand_that_cannot_be_met():
    weight = torch.nn.Parameter(torch.ones(3))
    capture.mark_dynamic(weight, 0)
    with pytest.raises(errors.DynamicDimError, match="it is a parameter"):
        compiled(lambda x: x + weight)[0](torch.ones(3))


def test_ints_of_static_modules_stay_constants():
    @capture.mark_static
    class Static(torch.nn.Module):
        n = 0

        def forward(self, x):
            return x + self.n

    module = Static()
    call, graphs = compiled(lambda x: module(x))
    for n in (3, 4, 5):
        module.n = n
        assert torch.equal(call(torch.ones(2)), torch.full((2,), 1.0 + n))
    assert len(graphs) == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: capture.mark_dynamic(3, 0), "takes a tensor"),
        (lambda x: capture.mark_static(x, "0"), "takes a dim or a list of dims"),
        (lambda x: capture.mark_dynamic(x, 0, min=5), "Widen it"),
        (lambda x: capture.mark_unbacked(x, 0, min=5, max=2), "Swap them"),
        (lambda x: capture.mark_static_address(None), "takes a tensor"),
    ],
)
def test_misuse(call, words):
    with pytest.raises(errors.ControlMisuse, match=words):
        call(torch.ones(3, 2))


@pytest.mark.parametrize("mark", [capture.mark_dynamic, capture.maybe_mark_dynamic, capture.mark_static, capture.mark_unbacked])
def test_a_dim_that_is_not_there_is_left_out(mark):
    x = torch.ones(3, 2)
    with pytest.warns(UserWarning, match="a tensor of 2 dims has no dim 5"):
        mark(x, [0, 5])
    kept = x.__dict__ | {"_has_dynamo_dim_marking": None}
    assert {0} in kept.values() and {0, 5} not in kept.values()


@pytest.mark.parametrize("dim", [5, -1, -5])
def test_marks_of_torchs_on_dims_that_are_not_there_mean_nothing(dim):
    x = torch.ones(3, 2)
    x._dynamo_dynamic_indices = {dim}  # as torch.compile's mark leaves it, without a look at the tensor
    assert dims.marks_of(x).dynamic == frozenset()


def test_marking_inside_is_refused():
    def inside(x):
        capture.mark_dynamic(x, 0)
        return x + 1

    with pytest.raises(errors.ForbiddenCall, match="mark_dynamic"):
        compiled(inside)[0](torch.ones(3))


def test_marks_are_attributes_of_the_tensor():
    x = torch.ones(3, 2)
    assert dims.marks_of(x) is dims.NO_MARKS
    capture.mark_dynamic(x, -1, max=5)
    assert dims.marks_of(x).dynamic == {1} and dims.marks_of(x).ranges == {1: dims.DimRange(None, 5)}
