"""Calls captured as a whole: the result as data, and what is refused."""

import collections
import contextlib

import pytest
import torch
from tracework_capture import CaptureOptions, NotWhole, Slot, Unsupported, capture_whole, mark_dynamic

Pair = collections.namedtuple("Pair", "a b")
LIST = []


def whole(function, *args, **kwargs):
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return capture_whole(call, args, kwargs, lambda gm, examples: "made", CaptureOptions(fullgraph=True))


def x():
    made = torch.ones(4, 3)
    mark_dynamic(made, 0)
    return made


def out(place):
    return Slot("output", place)


RESULTS = {
    "a tensor": (lambda x: x + 1, out(0)),
    "containers": (lambda x: {"y": [x + 1, (2, None)]}, {"y": [out(0), (2, None)]}),
    "a named tuple": (lambda x: Pair(x + 1, 3), Pair(out(0), 3)),
    "a size": (lambda x: (x + 1, x.shape[0] * 2), (out(0), out(1))),
    "sizes": (lambda x: (x + 1, tuple(x.shape)), (out(0), (out(1), 3))),
    "an argument": (lambda x: (x + 1, x), (out(0), Slot("input", 1))),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results(case):
    function, expected = RESULTS[case]
    call = whole(function, x())
    assert call.result == expected and call.compiled == "made"
    assert [str(b.source) for b in call.graph.inputs] == ["args[0].size(0)", "args[0]"]


def test_arguments_that_are_no_inputs():
    call = whole(lambda x, rest, k: (x + 1, rest, k), x(), [1, {"a": 2}], k="text")
    assert call.result == (
        out(0),
        [Slot("argument", ("args", 1, 0)), {"a": Slot("argument", ("args", 1, 1, "a"))}],
        Slot("argument", ("kwargs", "k")),
    )


class Holder:
    pass


HOLDER = Holder()


def appends(x):
    LIST.append(1)
    return x + 1


def sets(x):
    HOLDER.y = x + 1
    return x * 2


def prints(x):
    print("now")
    return x + 1


def sets_a_global(x):
    global LIST
    LIST = [2]
    return x + 1


def leaves_gradients_off(x):
    torch.set_grad_enabled(False)
    return x + 1


def sets_and_restores(x):
    KEEPER.flag = True
    y = x + 1
    KEEPER.flag = False
    return y


KEEPER = Holder()
KEEPER.flag = False


def test_what_is_as_before_is_no_effect():
    assert whole(sets_and_restores, x()).result == out(0)
    KEEPER.flag = 0  # not the same, though equal
    with pytest.raises(NotWhole, match="sets .*KEEPER.*flag"):
        whole(sets_and_restores, x())


REFUSED = {
    appends: "changes what is in .*LIST",
    sets: "sets .*HOLDER.*y",
    prints: "calls print",
    sets_a_global: "changes a global",
    leaves_gradients_off: "leaves gradients switched",
}


@pytest.mark.parametrize("function", REFUSED)
def test_effects_are_refused(function):
    with pytest.raises(NotWhole, match=REFUSED[function]):
        whole(function, x())
    assert not LIST and not vars(HOLDER) and torch.is_grad_enabled()


def in_an_except_block(x, i):
    try:
        return x[i] + 1
    except IndexError:
        return x


def suppressed(x, i):
    with contextlib.suppress(IndexError):
        x = x[i]
    return x + 1


class Ends:
    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return True


def ended(x, i):
    with Ends():
        x = x[i]
    return x + 1


def raised_again(x, i):
    try:
        return x[i] + 1
    except IndexError:
        raise
    finally:
        pass


def in_no_context(x, i):
    with contextlib.nullcontext():
        return x[i] + 1


def written(x, i):
    x.index_add_(0, i, torch.ones(2, 3))
    return x[i] + 1


RAISING = {in_an_except_block: True, suppressed: True, ended: True, raised_again: False, in_no_context: False, written: False}
"""Whether the program goes on where the operator raises, which no graph does."""


@pytest.mark.parametrize("function", RAISING)
def test_operators_that_may_raise(function):
    given = torch.ones(4, 3), torch.tensor([0, 1])
    if RAISING[function]:
        with pytest.raises(NotWhole, match="goes on where an operator raises"):
            whole(function, *given)
    else:
        assert whole(function, *given).result == out(0)


def test_breaks_are_refused():
    with pytest.raises(Unsupported, match="nonzero"):
        whole(lambda x: x.nonzero(), x())
    with pytest.raises(NotWhole, match="outside of the graph"):
        whole(lambda x: x.sum().item(), x())


def test_calls_without_operations_have_empty_graphs():
    call = whole(lambda x: 3, x())
    assert not [node for node in call.graph.graph.graph.nodes if node.op == "call_function"] and call.result == 3


def test_errors_of_the_backend_are_its_own():
    def call(*args, **kwargs):
        return args[0] + 1

    def fails(gm, examples):
        raise KeyError("backend")

    with pytest.raises(KeyError, match="backend"):
        capture_whole(call, (x(),), {}, fails, CaptureOptions(fullgraph=True))


def test_slots_are_no_numbers():
    for use in (lambda s: s + 1, lambda s: 2 * s, str, bool, float, lambda s: s < 3, lambda s: f"{s}"):
        with pytest.raises(TypeError, match="is not known here"):
            use(out(0))
