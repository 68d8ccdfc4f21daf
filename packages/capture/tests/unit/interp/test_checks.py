"""Conditions on data whose one arm only raises do not break the graph; what fails runs as plain Python from the start, once."""

import traceback

import pytest
import torch
import tracework_capture


class Compiled:
    """A function with its graphs counted; `graphs` are the captured modules."""

    def __init__(self, function, **options):
        self.graphs = []
        self.call = tracework_capture.optimize(self.backend, **options)(function)

    def backend(self, module, example_inputs):
        self.graphs.append(module)
        return module.forward


def outcome(function, *args):
    """(result, None) or (None, type and text of the exception)"""
    try:
        return function(*args), None
    except Exception as error:
        return None, (type(error), str(error).partition("\n")[0])  # pytest adds lines to assert


def agree(function, *calls, **options):
    """Each call gives what plain Python gives; the number of graphs."""
    compiled = Compiled(function, **options)
    for args in calls:
        expected, raised = outcome(function, *[a.clone() for a in args])
        found, found_raised = outcome(compiled.call, *args)
        assert found_raised == raised
        if raised is None:
            torch.testing.assert_close(found, expected)
    return len(compiled.graphs)


GOOD, BAD = torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 2.0])


def raises_inline(x):
    y = x + 1
    if (y < 0.5).any():
        raise ValueError(f"found {y.min().item()} in a tensor of {'one' if y.numel() == 1 else 'several'}")
    return y * 2


def asserts(x):
    y = x * 3
    assert (y > 0).all(), "must be positive"
    return y.sqrt()


def either_will_do(x):
    if (x < 0).any() or (x.sum() > 100):
        raise ArithmeticError
    return x + 1


def truth_of_a_number(x):
    if x.sum() - 3:
        raise RuntimeError("the sum is not three")
    return x - 1


def checks_in_a_callee(x):
    def positive(t):
        if not (t > 0).all():
            raise KeyError("negative")
        return t

    with torch.no_grad():
        return positive(x) + positive(x + 1)


@pytest.mark.parametrize("function", [raises_inline, asserts, either_will_do, truth_of_a_number, checks_in_a_callee])
def test_one_graph_and_eagers_exception(function):
    assert agree(function, (GOOD,), (BAD,), (GOOD,), (BAD,)) == 1


def test_whole_graphs_are_demanded():
    compiled = Compiled(asserts, fullgraph=True)
    torch.testing.assert_close(compiled.call(GOOD), asserts(GOOD))
    with pytest.raises(AssertionError, match="must be positive"):
        compiled.call(BAD)


def test_the_traceback_ends_at_the_line_that_raises():
    compiled = Compiled(asserts)
    compiled.call(GOOD)
    with pytest.raises(AssertionError) as caught:
        compiled.call(BAD)
    last = caught.traceback[-1]
    assert last.name == "asserts" and "must be positive" in str(last.statement)


def test_side_effects_before_the_exception_are_made_once():
    seen = []

    def program(x):
        seen.append("start")
        y = x + 1
        if (y < 0.5).any():
            seen.append("bad")
            raise ValueError("bad")
        seen.append("good")
        return y

    compiled = Compiled(program)
    compiled.call(GOOD)
    with pytest.raises(ValueError, match="bad"):
        compiled.call(BAD)
    assert seen == ["start", "good", "start", "bad"]


def test_random_numbers_are_drawn_once():
    def program(x):
        y = torch.rand(3) + x.sum()
        if (x < 0).any():
            raise ValueError(f"{y.sum().item()}")
        return y

    compiled = Compiled(program)
    for x in (GOOD, BAD, GOOD):
        torch.manual_seed(3)
        expected = outcome(program, x), torch.rand(2)
        torch.manual_seed(3)
        found = outcome(compiled.call, x), torch.rand(2)
        torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
        assert found[0][1] == expected[0][1]
    assert len(compiled.graphs) == 1


def writes_before_it_looks(x, *others):
    x.add_(1)
    for other in others:
        x.mul_(other)
    if (x < 0.5).any():
        raise ValueError("bad")
    return x * 2


def test_what_a_graph_wrote_is_put_back_where_a_condition_does_not_hold():
    compiled = Compiled(writes_before_it_looks)
    for start in (GOOD, BAD, GOOD, BAD):
        x, expected = start.clone(), start.clone()
        assert str(outcome(compiled.call, x)) == str(outcome(writes_before_it_looks, expected))
        assert torch.equal(x, expected)
    assert len(compiled.graphs) == 1


def test_a_view_that_was_written_is_put_back():
    memory = torch.stack([GOOD, BAD, BAD])
    expected = memory.clone()
    compiled = Compiled(writes_before_it_looks)
    for row, same in zip(memory.t()[:, 1:], expected.t()[:, 1:]):
        assert str(outcome(compiled.call, row)) == str(outcome(writes_before_it_looks, same))
    assert torch.equal(memory, expected)


@pytest.mark.parametrize(
    "make",
    [lambda: (torch.ones(1 << 15),), lambda: (torch.ones(2), torch.ones(2, requires_grad=True))],
    ids=["much", "with history"],
)
def test_writes_that_cannot_be_put_back_break(make):
    compiled = Compiled(writes_before_it_looks)
    for sign in (1, -1, 1):
        (x, *others), (expected, *same) = make(), make()
        x.mul_(sign), expected.mul_(sign)
        found, wanted = outcome(compiled.call, x, *others), outcome(writes_before_it_looks, expected, *same)
        assert found[1] == wanted[1] and torch.equal(x, expected)
    assert len(compiled.graphs) > 1


def test_running_statistics_are_put_back():
    norm, other = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)

    def program(x, norm):
        y = norm(x)
        if (x < 0).any():
            raise ValueError("bad")
        return y * 2

    compiled = Compiled(program)
    for function, module in ((compiled.call, norm), (program, other)):
        function(torch.ones(4, 2), module)
        with pytest.raises(ValueError, match="bad"):
            function(-torch.ones(4, 2), module)
    for buffer, expected in zip(norm.buffers(), other.buffers()):
        assert torch.equal(buffer, expected)
    assert len(compiled.graphs) == 1


def test_an_exception_that_the_program_catches_is_no_check():
    def program(x):
        try:
            if (x < 0).any():
                raise ValueError("bad")
            return x + 1
        except ValueError:
            return x - 1

    assert agree(program, (GOOD,), (BAD,), (GOOD,)) > 1


def raises_before_a_finally_block(x):
    try:
        if (x < 0).any():
            raise ValueError("bad")
        return x + 1
    finally:
        x.numel()


def raises_below_a_finally_block(x):
    try:
        return raises_inline(x)
    finally:
        x.numel()


def raises_below_a_clause_that_raises_again(x):
    try:
        return asserts(x)
    except AssertionError as error:
        raise KeyError("not positive") from error


def raises_below_a_finally_block_that_returns(x):
    try:
        return raises_inline(x)
    finally:
        return x - 1  # noqa: B012


@pytest.mark.parametrize(
    ("function", "graphs"),
    [
        (raises_before_a_finally_block, 1),
        (raises_below_a_finally_block, 1),
        (raises_below_a_clause_that_raises_again, 1),
        (raises_below_a_finally_block_that_returns, None),
    ],
)
def test_blocks_that_an_exception_leaves_do_not_stop_a_check(function, graphs):
    counted = agree(function, (GOOD,), (BAD,), (GOOD + 1,))
    assert counted == graphs if graphs else counted > 1


class Refused(ValueError):
    def __init__(self, text):
        super().__init__(f"refused: {text}")


CHECKS = {
    "_check_tensor_all": lambda x: torch._check_tensor_all(x > 0),
    "_check_tensor_all, a message": lambda x: torch._check_tensor_all(x > 0, lambda: f"{x.min()} is not positive"),
    "_check_tensor_all_with": lambda x: torch._check_tensor_all_with(IndexError, x > 0, lambda: "not positive"),
    "_check_tensor_all_with, a class of the program": lambda x: torch._check_tensor_all_with(Refused, x > 0, lambda: "no"),
    "_check_with, what holds": lambda x: torch._check_with(Refused, x.ndim == 1, lambda: "no vector"),
    "_check_with, a size that depends on data": lambda x: torch._check_with(TypeError, x[x > 0].numel() == 2, lambda: "no"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_torchs_checks_of_data_are_checks(name):
    def program(x):
        y = x * 2
        CHECKS[name](y)
        return y.exp()

    assert agree(program, (GOOD,), (BAD,), (GOOD + 1,), unbacked=None) == 1


REFUSED = {
    "_check_with": lambda x: torch._check_with(Refused, x.ndim == 2, lambda: "no matrix"),
    "_check_with, no message": lambda x: torch._check_with(ValueError, x.ndim == 2, None),
    "_check_with, a tensor": lambda x: torch._check_with(ValueError, x.sum() > 0, lambda: "no"),
    "_check_tensor_all, no tensor": lambda x: torch._check_tensor_all(x.ndim == 1),
    "_check_tensor_all, numbers": lambda x: torch._check_tensor_all(x),
    "_check": lambda x: torch._check(x.ndim == 2),
    "_check, no function": lambda x: torch._check(x.ndim == 2, 3),
    "_check, a text": lambda x: torch._check(x.ndim == 2, "no matrix"),
    "_check_value, a text": lambda x: torch._check_value(x.ndim == 2, "no matrix"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_torchs_checks_refuse_what_eager_refuses(name):
    def program(x):
        y = x * 2
        try:
            REFUSED[name](y)
        except Exception as error:
            return y, type(error).__name__, str(error)
        return y

    expected = program(GOOD)
    found = tracework_capture.optimize(lambda module, example_inputs: module.forward)(program)(GOOD)
    assert found[1:] == expected[1:]


def test_what_numbers_alone_decide_is_no_check():
    def program(x):
        spread = torch.distributions.Normal(0, 1).icdf(torch.tensor(0.95))
        return x - spread

    compiled = Compiled(program)
    torch.testing.assert_close(compiled.call(GOOD), program(GOOD))
    (graph,) = compiled.graphs
    (output,) = graph.graph.find_nodes(op="output")
    assert len(output.all_input_nodes) == 1


def test_captured_graphs_have_the_outputs_of_the_function():
    with pytest.raises(tracework_capture.Unsupported):
        tracework_capture.capture(asserts, GOOD)


def test_arguments_of_every_kind_and_cells_reach_the_plain_run():
    scale = torch.tensor(2.0)

    def program(x, /, *rest, key, **named):
        inner = lambda: (x, scale)
        y = inner()[0] * inner()[1] + rest[0] + key + named["last"]
        if (y < 0).any():
            raise ValueError(f"{y.tolist()} {len(rest)} {sorted(named)}")
        return y

    compiled = Compiled(program)
    for x in (GOOD + 1, BAD * 10):
        args, named = (x, GOOD, 1), {"key": GOOD, "last": GOOD}
        expected, found = (outcome(lambda f=f: f(*args, **named)) for f in (program, compiled.call))
        assert found[1] == expected[1]
    assert len(compiled.graphs) == 1


# --- graphs that raise --------------------------------------------------------------------------------------------------


def test_side_effects_before_an_operator_that_raises_are_made_once():
    seen = []

    def program(x, index):
        seen.append("before")
        y = x[index]
        seen.append("after")
        return y

    compiled = Compiled(program)
    compiled.call(GOOD, torch.tensor([0]))
    with pytest.raises(IndexError):
        compiled.call(GOOD, torch.tensor([7]))
    assert seen == ["before", "after", "before"]


def test_the_programs_own_handler_sees_what_the_graph_raises():
    def program(x):
        try:
            return torch.linalg.cholesky(x)
        except torch.linalg.LinAlgError:
            return x * 0

    assert agree(program, (torch.eye(2),), (-torch.eye(2),), (torch.eye(2),)) == 1


def test_a_graph_that_wrote_to_an_input_is_not_run_again():
    seen = []

    def program(x, index):
        seen.append(1)
        x.add_(1)
        return x[index]

    compiled = Compiled(program)
    x = GOOD.clone()
    compiled.call(x, torch.tensor([0]))
    with pytest.raises(IndexError):
        compiled.call(x, torch.tensor([7]))
    torch.testing.assert_close(x, GOOD + 2)


def writes_then_raises(x, index):
    try:
        x.mul_(2)
        y = x[index]
    except IndexError:
        return x + 100
    finally:
        x.add_(1)
    return y


def raises_then_writes(x, index):
    try:
        y = x[index]
        x.mul_(2)
    except IndexError as error:
        return x + len(str(error))
    return y


def writes_and_raises_in_a_callee(x, index):
    def inner():
        x.mul_(2)
        return x[index]

    try:
        y = inner()
    except IndexError:
        return x + 100
    return y


def in_rounds(x, index):
    for step in range(3):
        try:
            x.add_(step)
            y = x[index]
            x.add_(1)
        except IndexError:
            y = x.sub_(5)
    return y + x


def divides(x, index):
    try:
        x.add_(1)
        return x.long() // index
    except RuntimeError:
        return x * 2


@pytest.mark.parametrize(
    "function",
    [writes_then_raises, raises_then_writes, writes_and_raises_in_a_callee, in_rounds, divides],
    ids=lambda f: f.__name__,
)
def test_handlers_of_graphs_that_write_are_entered(function, caplog):
    compiled = Compiled(function)
    for index in (1, 7, 0, 7, 1):
        x, expected = GOOD.clone(), GOOD.clone()
        found = outcome(compiled.call, x, torch.tensor([index]))
        assert str(found) == str(outcome(function, expected, torch.tensor([index])))
        assert torch.equal(x, expected)
    assert not [r for r in caplog.records if "please report" in r.message]


def test_graphs_that_write_and_cannot_raise_do_not_break():
    def program(x):
        try:
            x.mul_(2)
            return x.softmax(0) @ x, x.float() / 3
        except IndexError:
            return x

    assert agree(lambda x: program(x)[0], (GOOD.clone(),), (GOOD.clone(),)) == 1


def test_what_the_check_refuses_may_make_the_graph_raise():
    def program(x, index):
        if index.max() >= 2:
            raise ValueError("too large")
        return x[index] + 1

    assert agree(program, (GOOD, torch.tensor([1])), (GOOD, torch.tensor([5])), (GOOD, torch.tensor([0]))) == 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_fails_often_breaks_instead(fullgraph, caplog):
    """Each failure costs a run of the graph and a plain one; where breaks are errors it stays so."""
    compiled = Compiled(raises_inline, fullgraph=fullgraph)
    with caplog.at_level("WARNING", "tracework.capture.checks"):
        for _ in range(15):
            for argument in (GOOD, BAD):
                assert str(outcome(compiled.call, argument)) == str(outcome(raises_inline, argument))
    assert (len(compiled.graphs) == 1) is fullgraph
    assert [r.message.startswith("conditions on data failed 10 times") for r in caplog.records] == [True] * (not fullgraph)


def lines_of(function, *args):
    """Each frame of the traceback: its line, counted from the first of its function."""
    try:
        function(*args)
    except Exception as error:
        frames = list(traceback.walk_tb(error.__traceback__))[1:]
        return [(f.f_code.co_name, line - f.f_code.co_firstlineno, f.f_lineno - f.f_code.co_firstlineno) for f, line in frames]
    raise AssertionError("nothing is raised")


def test_lines_count_from_the_first_of_the_function():
    def divides(x):
        y = x + 1
        print(y.shape[0] / 0)

    def misses(x):
        y = x + 1
        return y * this_name_is_not_defined  # noqa: F821

    for function in (divides, misses):
        compiled = Compiled(function).call
        expected = lines_of(function, GOOD)
        assert [entry for entry in lines_of(compiled, GOOD) if entry[0] == function.__name__] == expected
        assert lines_of(compiled, GOOD)[-1] == expected[-1]


def trains(w, x):
    loss = (w * x).square().sum()
    loss.backward()
    with torch.no_grad():
        w.sub_(0.1 * w.grad)
    w.grad = None
    if not (loss < 1000).all():
        raise ValueError("the loss is too large")
    return loss.detach()


def test_a_training_step_is_one_graph_and_is_taken_back():
    compiled = Compiled(trains)
    w, plain = (GOOD.clone().requires_grad_() for _ in range(2))
    for x in (GOOD, GOOD * 100, GOOD):
        expected, found = outcome(trains, plain, x), outcome(compiled.call, w, x)
        assert found[1] == expected[1]
        torch.testing.assert_close((found[0], w), (expected[0], plain))
        assert w._version == plain._version and (w.grad is None) == (plain.grad is None)
        w.grad = plain.grad = None
    assert len(compiled.graphs) == 1
