"""What is left of a loop after a break in it: captured together when it breaks no more, else round by round, else left plain."""

import weakref

import pytest
import torch
import tracework_capture as capture

X = torch.arange(6.0).reshape(2, 3)


def graphs_of(function, *args):
    """The number of operators of each graph, after the compiled function gave what the plain one gives, several times."""
    graphs = []

    def backend(module, example_inputs):
        graphs.append(sum(n.op in ("call_function", "call_method") for n in module.graph.nodes))
        return module.forward

    expected = function(*args)
    compiled = capture.optimize(backend)(function)
    for _ in range(4):
        torch.testing.assert_close(compiled(*args), expected)
    return graphs


class Layer(torch.nn.Module):
    def __init__(self, number, breaks):
        super().__init__()
        self.number, self.breaks = number, breaks

    def forward(self, x):
        x = (x + self.number).relu()
        if self.breaks:
            capture.graph_break()
        return x * 2 - self.number


class Layers(torch.nn.Module):
    def __init__(self, breaking, kind):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(i, i in breaking) for i in range(6))
        self.kind = kind

    def forward(self, x):
        if self.kind == "modules":
            for layer in self.layers:
                x = layer(x)
        elif self.kind == "enumerate":
            for number, layer in enumerate(self.layers, 3):
                x = layer(x) + number
        else:
            for layer, row in zip(self.layers, x.new_ones(6, 3)):
                x = layer(x) + row
        return x.exp()


@pytest.mark.parametrize("kind", ["modules", "enumerate", "zip"])
def test_the_rest_of_a_loop_is_one_graph(kind):
    graphs = graphs_of(Layers({1}, kind), X / 100)
    assert len(graphs) == 4  # up to the call, in the callee before and after the break, the rest
    assert graphs[-1] >= 4 * 4


def test_modules_that_weak_references_know_of():
    """Such as those that are made after a first call of torch.compile: what a module holds is not dropped with a local."""
    layers = Layers({1}, "modules")
    known = weakref.WeakSet(layers.layers)
    graphs = graphs_of(layers, X / 100)
    assert len(graphs) == 4 and len(known) == 6


@pytest.mark.parametrize("kind", ["modules", "enumerate", "zip"])
def test_several_breaks(kind):
    graphs_of(Layers({0, 2, 5}, kind), X / 100)


def test_rounds_share_what_is_compiled():
    def program(x):
        total = 0.0
        for row in x:
            y = (row * 2 + 1).exp()
            total += y.sum().item()
        return x + total

    assert len(graphs_of(program, torch.linspace(0, 1, 20).reshape(10, 2))) < 10


def test_a_list_may_grow_while_it_is_gone_over():
    def program(x):
        rows, seen = [x, x + 1], []
        for row in rows:
            seen.append(row.sum().item())
            if len(rows) < 5:
                rows.append(row * 2)
        return seen

    graphs_of(program, X)


def test_an_iterator_that_the_program_holds_is_its_own():
    def program(x):
        numbers = enumerate((x, x + 1, x + 2, x + 3))
        found = []
        for number, row in numbers:
            found.append((number, row.sum().item()))
            found.append(next(numbers)[1])
        return found

    graphs_of(program, X)


def test_leaving_a_loop_early_and_loops_in_loops():
    def program(x):
        found = []
        for i, row in enumerate((x, x + 1, x + 2)):
            for j, element in enumerate((row * 2, row * 3)):
                found.append(element + i * j)
                if element.sum().item() > 40:
                    break
            else:
                found.append(row)
        return found

    graphs_of(program, X)


def test_an_exception_in_a_later_round():
    def program(x):
        found = []
        try:
            for i, row in enumerate((x, x + 1, x + 2)):
                if i == 0:
                    capture.graph_break()
                if i == 2:
                    raise KeyError(i)
                found.append(row * 2)
        except KeyError as error:
            found.append(x + error.args[0])
        return found

    graphs_of(program, X)


def test_a_loop_that_breaks_twice_in_each_round_is_left_plain():
    def program(x):
        def work(row):
            return (row * 2 + 1).exp().sum()

        found = []
        for row in (x, x + 1, x + 2, x + 3):
            first = (row + 1).sum().item()
            second = (row * first).max().item()
            found.append(work(row) + first + second)
        return found

    graphs = graphs_of(program, X)
    assert len(graphs) <= 3  # up to the first break, and what is called in the loop


# --- iterators made before a break and asked after it ---------------------------------------------------------------------


def pairs(x, count):
    for i in range(count):
        yield i, x + i


def scaled(rows):
    for row in rows:
        yield row * 2


def raising(x):
    yield x
    raise ValueError("no more")


@capture.disable
def disabled(x):
    for i in range(3):
        TRACED.append(torch.compiler.is_compiling())
        yield x + i


TRACED = []
MODEL = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))


def over_parameters(x):
    ours, others = MODEL.parameters(), MODEL.parameters()
    start = x.sum().item()
    return [a * 2 + b + start for a, b in zip(ours, others)], list(ours), next(others, None)


def over_a_generator(x):
    made = pairs(x, 4)
    start = x.sum().item()
    return [y * i + start for i, y in made], list(made)


def over_a_generator_of_a_list(x):
    rows = [x, x + 1]
    made = scaled(rows)
    rows.append(x * x.sum().item())
    return [y + 1 for y in made], next(made, None), len(rows)


@pytest.mark.parametrize("program", [over_parameters, over_a_generator, over_a_generator_of_a_list])
def test_a_loop_over_what_was_made_before_a_break_is_one_graph(program):
    assert len(graphs_of(program, X)) == 1  # the sum alone stays with plain Python


def left_in_the_middle(x):
    made, rows = pairs(x, 4), iter([x, x + 1, x + 2])
    start = x.sum().item()
    first = next(made)[1] * 2 + next(rows)
    return first + start, [y + 1 for _, y in made], list(rows)


def broken_in_a_round(x):
    made, rows = pairs(x, 4), iter([x, x + 1, x + 2])
    start = x.sum().item()
    found = []
    for (_, a), b in zip(made, rows):
        found.append(a * b + start)
        found.append(a.sum().item())
    return found, list(made), list(rows)


def closed_before_it_starts(x):
    made = pairs(x, 4)
    start = x.sum().item()
    made.close()
    return x * 2 + start, list(made)


def that_raises(x):
    made = raising(x)
    start = x.sum().item()
    found = []
    try:
        for y in made:
            found.append(y * 2 + start)
    except ValueError as error:
        found.append(len(str(error)))
    return found, list(made)


def the_same_twice(x):
    made, rows = pairs(x, 4), iter([x, x + 1, x + 2, x + 3])
    start = x.sum().item()
    return [a + b + start for (_, a), (_, b) in zip(made, made)], [a * b for a, b in zip(rows, rows)], list(made), list(rows)


def over_a_list_that_grows(x):
    rows = [x, x + 1]
    made = iter(rows)
    start = x.sum().item()
    found = []
    for row in made:
        found.append(row + start)
        if len(rows) < 5:
            rows.append(row * 2)
    rows.append(x)
    return found, next(made, None), len(rows)


def a_list_that_grows_after_a_part(x):
    rows = [x, x + 1]
    made = iter(rows)
    start = x.sum().item()
    found = [next(made) + start]
    rows += [x * 2, x * 3]
    return found, list(made)


@pytest.mark.parametrize(
    "program",
    [
        left_in_the_middle,
        broken_in_a_round,
        closed_before_it_starts,
        that_raises,
        the_same_twice,
        over_a_list_that_grows,
        a_list_that_grows_after_a_part,
    ],
)
def test_iterators_made_before_a_break_end_where_they_do_in_plain_python(program):
    graphs_of(program, X)


def test_a_generator_of_a_disabled_function_runs_plainly():
    def program(x):
        return [y * 2 for y in disabled(x)]

    graphs_of(program, X)
    assert TRACED == [False] * 3 * 5


def consumed(made, x):
    return [row * 2 for row in made if row is not None], x + 1


def sum_of_two(first, second, x):
    return [a + b for a, b in zip(first, second)], x + 1


def given(x, kind, started):
    made = scaled([x, x + 1, x + 2]) if kind == "generator" else iter([x, x + 1, x + 2])
    for _ in range(started):
        next(made)
    return made


@pytest.mark.parametrize("kind", ["generator", "list"])
def test_an_iterator_that_comes_in_is_left_as_the_program_leaves_it(kind):
    compiled = capture.optimize(lambda module, example_inputs: module.forward)(consumed)
    for started in (0, 1, 3, 0):
        plain, ours = given(X, kind, started), given(X, kind, started)
        torch.testing.assert_close(compiled(ours, X), consumed(plain, X))
        assert list(ours) == list(plain) == []
    ended = given(X, kind, 0)
    assert len(list(ended)) == 3
    assert compiled(ended, X)[0] == []


@pytest.mark.parametrize("kind", ["generator", "list"])
def test_two_iterators_that_come_in_may_be_one(kind):
    compiled = capture.optimize(lambda module, example_inputs: module.forward)(sum_of_two)
    for same in (False, True, False):
        plain, ours = given(X, kind, 0), given(X, kind, 0)
        expected = sum_of_two(plain, plain if same else given(X, kind, 0), X)
        torch.testing.assert_close(compiled(ours, ours if same else given(X, kind, 0), X), expected)
        assert len(list(ours)) == len(list(plain))


def test_a_comprehension_after_one_that_had_the_name_of_a_cell():
    """Both have `i` for themselves; in 3.12 they are part of the function, which has a cell of that name."""

    def program(x, items):
        items = items + [i for i in [j for i, j in enumerate(items)] if stop(i) != 2]
        return x + 1, items, [each(0) for each in [lambda p: i for i in range(2)]]

    stop = capture.disable(lambda value: value)
    compiled = capture.optimize(lambda graph, inputs: graph.forward)(program)
    for _ in range(3):
        assert compiled(torch.ones(1), [7, 2, 5])[1:] == ([7, 2, 5, 7, 5], [1, 1])


class Noted:
    pass


def test_a_comprehension_that_has_the_name_of_a_cell_where_locals_may_be_looked_at():
    def program(x, items):
        Noted.items = items
        each = [lambda p: i for i in range(2)]
        [i for i in items if stop(i)]
        return x + 1, [e(0) for e in each], vars

    stop = capture.disable(lambda value: value)
    compiled = capture.optimize(lambda graph, inputs: graph.forward)(program)
    for _ in range(3):
        assert compiled(torch.ones(1), [7, 0, 3])[1] == [1, 1]


def test_breaks_after_blocks_are_in_no_loop():
    """What handles the exceptions of a block lies behind the code after it, and jumps back to it (3.12+)."""

    def f(x):
        with torch.no_grad():
            x = x + 1
        capture.graph_break()
        with torch.no_grad():
            x = x * 2
        capture.graph_break()
        return x + 3

    assert len(graphs_of(f, X)) == 3


def test_shared_variables_that_a_round_unbinds():
    def f(x):
        shared, read = 1, lambda: shared
        for i in range(3):
            capture.graph_break()
            if i == 1:
                del shared
            capture.graph_break()
            try:
                x = x + shared
            except UnboundLocalError as error:
                x = x * len(str(error))
                shared = 1
            capture.graph_break()
        return x * read()

    assert not graphs_of(f, X)  # its pieces are too small, and plain code raises what it raised before
