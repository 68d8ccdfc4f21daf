"""set_stance: what each stance does with calls, and where it is refused."""

import sys
import types

import pytest
import torch
import tracework_capture as capture
from counted_graphs import compiled
from tracework_capture import errors
from tracework_capture.hook import stance as stances

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def back_to_default():
    yield
    assert stances.current() == stances.Stance()


def plus_one(x):
    return x + 1


@pytest.mark.parametrize("name", ["force_eager", "eager_on_recompile"])
def test_nothing_is_compiled(name):
    call, graphs = compiled(plus_one)
    with capture.set_stance(name):
        assert torch.equal(call(X), X + 1)
    assert not graphs
    assert torch.equal(call(X), X + 1) and len(graphs) == 1


def test_eager_on_recompile_uses_what_there_is():
    ran = []

    def backend(gm, example_inputs):
        def run(*args):
            ran.append(len(args))
            return gm.forward(*args)

        return run

    call = capture.optimize(backend)(plus_one)
    call(X)
    with capture.set_stance("eager_on_recompile"):
        call(X)
        call(torch.ones(7))
    assert ran == [1, 1]
    with capture.set_stance("force_eager"):
        call(X)
    assert ran == [1, 1]


def test_fail_on_recompile_says_why_and_what_to_do():
    call, graphs = compiled(plus_one)
    with pytest.raises(errors.RecompileError, match="warm it up"), capture.set_stance("fail_on_recompile"):
        call(X)
    call(X)
    with capture.set_stance("fail_on_recompile"):
        call(X)
        with pytest.raises(RuntimeError, match="x has size 4 in dim 0, had 3"):
            call(torch.ones(4))
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore::tracework_capture.RecompileLimitWarning")
def test_fail_on_recompile_holds_at_the_limit_of_entries_too():
    call = capture.optimize(lambda gm, inputs: gm.forward, recompile_limit=1, dynamic=False)(plus_one)
    call(X)
    call(torch.ones(4))
    with pytest.raises(errors.RecompileError), capture.set_stance("fail_on_recompile"):
        call(torch.ones(5))


def test_eager_then_compile_sees_two_sizes_before_it_compiles():
    call, graphs = compiled(plus_one)
    with capture.set_stance("eager_then_compile"):
        call(torch.ones(3))
        assert not graphs
        for n in (4, 5, 9):
            assert torch.equal(call(torch.ones(n)), torch.full((n,), 2.0))
    assert len(graphs) == 1


def test_aot_eager_then_compile_uses_the_first_backend_once():
    first = []

    def first_backend(gm, example_inputs):
        first.append(gm)
        return gm.forward

    call, graphs = compiled(plus_one)
    with capture.set_stance("aot_eager_then_compile", first_backend=first_backend):
        assert torch.equal(call(X), X + 1)
        assert (len(first), len(graphs)) == (1, 0)
        for n in (4, 5):
            call(torch.ones(n))
    assert (len(first), len(graphs)) == (1, 1)


def test_force_backend_keeps_entries_of_its_own():
    other = []

    def other_backend(gm, example_inputs):
        other.append(gm)
        return gm.forward

    call, graphs = compiled(plus_one)
    for _ in range(2):
        with capture.set_stance(force_backend=other_backend):
            call(X)
            call(X)
        call(X)
    assert (len(other), len(graphs)) == (1, 1)


def test_skip_guard_eval_unsafe_checks_only_what_differs():
    steps = [1]
    call, graphs = compiled(lambda x: x + steps[0])
    call(X)
    with capture.set_stance(skip_guard_eval_unsafe=True):
        steps[0] = 2
        assert torch.equal(call(X), X + 1)  # wrong, as its name says
    assert torch.equal(call(X), X + 2) and len(graphs) == 2
    with capture.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(call(X), X + 2)
        steps[0] = 1
        assert torch.equal(call(X), X + 1)
        assert torch.equal(call(torch.ones(5)), torch.full((5,), 2.0))  # sizes did not tell them apart
    assert len(graphs) == 2


def test_a_new_entry_ends_the_skipping():
    steps = ["one"]
    call, graphs = compiled(lambda x: x + len(steps[0]))
    call(X)
    steps[0] = "four"
    call(X)
    with capture.set_stance(skip_guard_eval_unsafe=True):
        steps[0] = "eleven"
        assert torch.equal(call(X), X + 6)
        steps[0] = "one"
        assert torch.equal(call(X), X + 3)
    assert len(graphs) == 3


def test_function_decorator_and_context():
    call, graphs = compiled(plus_one)

    @capture.set_stance("force_eager")
    def plain():
        return call(X)

    assert stances.current().name == "default"
    plain()
    assert not graphs
    capture.set_stance("force_eager")
    try:
        call(X)
        assert not graphs
        with capture.set_stance("default"):
            call(X)
        assert len(graphs) == 1 and stances.current().name == "force_eager"
    finally:
        capture.set_stance("default")


def test_misuse_names_the_way_out():
    with pytest.raises(errors.ControlMisuse, match="Known: default, force_eager"):
        capture.set_stance("forced_eager")
    with pytest.raises(RuntimeError, match="Leave one of the two out"):
        capture.set_stance("force_eager", force_backend=lambda gm, inputs: gm.forward)
    with pytest.raises(errors.ControlMisuse, match="first_backend"):
        capture.set_stance("aot_eager_then_compile")

    def inside(x):
        capture.set_stance("force_eager")
        return x + 1

    with pytest.raises(errors.ForbiddenCall, match="set_stance"):
        compiled(inside)[0](X)

    def in_a_skipped_frame(x):
        capture.skip_frame()
        capture.set_stance("force_eager")
        return x + 1

    with pytest.raises(errors.StanceMisuse, match="around it"):
        compiled(in_a_skipped_frame)[0](X)


def test_the_stance_of_another_compiler_is_followed_while_none_is_set(monkeypatch):
    before = stances._followed
    module = types.ModuleType("another_compiler")
    module.taken = plain = object()
    asked = []

    def translate(taken):
        asked.append(taken)
        return stances.Stance() if taken is plain else stances.Stance(taken)

    call, graphs = compiled(lambda x: x + 1)
    try:
        capture.follow_stance("another_compiler", "taken", translate)
        call(torch.ones(2))
        assert len(graphs) == 1 and not asked  # it has not been imported
        monkeypatch.setitem(sys.modules, "another_compiler", module)
        for _ in range(3):
            call(torch.ones(2))
        assert asked == [plain]
        module.taken = "force_eager"
        call(torch.ones(2, dtype=torch.float64))
        assert len(graphs) == 1 and asked == [plain, "force_eager"]
        with capture.set_stance("fail_on_recompile"), pytest.raises(errors.RecompileError):
            call(torch.ones(2, dtype=torch.float64))
        module.taken = plain
        call(torch.ones(2, dtype=torch.float64))
        assert len(graphs) == 2
        del module.taken
        call(torch.ones(2))
        assert len(graphs) == 2
    finally:
        capture.follow_stance(before.module, before.name, before.translate)
