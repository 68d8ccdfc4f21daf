"""What is left of a loop after a break in it: captured together when it breaks no more, else round by round, else left plain."""

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
