"""Small tensors of whole numbers: what the program decides by those that modules keep, and by lists of numbers in other inputs, needs no
break, and any change of theirs is seen."""

import pytest
import torch
import tracework_capture as capture
from harness import check as capture_and_check
from torch import nn
from tracework_capture.graph.specialised import DTYPES
from tracework_capture.graph.tensor_formulas import SMALL

X = torch.arange(48.0).view(2, 24)


class Padded(nn.Module):
    """Pads, slices and branches by numbers that it keeps."""

    def __init__(self, dtype=torch.int64, as_buffers=True):
        super().__init__()
        kept = {"left": torch.tensor(2, dtype=dtype), "sizes": torch.tensor([3, 8], dtype=dtype), "wide": torch.tensor(True)}
        for name, value in kept.items():
            self.register_buffer(name, value) if as_buffers else setattr(self, name, value)

    def forward(self, x):
        rows, columns = self.sizes.tolist()
        right = (torch.ceil((x.shape[-1] - self.left) / self.left) * 2).to(torch.int64)
        y = nn.functional.pad(x, (self.left, right)).flatten()[: rows * columns].view(rows, columns)
        return x.sin() if self.left + self.sizes[0] > 6 and self.wide else y.split([rows, columns - rows], 1)


class Graphs:
    """A function compiled with a backend that counts its graphs."""

    def __init__(self, function, **options):
        self.count = 0
        self.compiled = capture.optimize(self.backend, **options)(function)

    def backend(self, gm, inputs):
        self.count += 1
        return gm.forward


def check(module, compiled, x=X):
    torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0)


def in_place(module):
    module.left.add_(1)


def data(module):
    module.left.data = torch.tensor(3, dtype=module.left.dtype)


def fill_data(module):
    module.left.data.fill_(3)


def by_numpy(module):
    module.left.numpy()[...] = 3


def an_item(module):
    module.sizes[1] = 7


def a_view_of_it(module):
    module.sizes.view(2, 1)[0, 0] = 4


def by_set(module):
    module.left.set_(torch.tensor(3, dtype=module.left.dtype))


def state_dict(module):
    module.load_state_dict({**module.state_dict(), "left": torch.tensor(3)})


def assigned_state_dict(module):
    module.load_state_dict({**module.state_dict(), "left": torch.tensor(3, dtype=module.left.dtype)}, assign=True)


def assignment(module):
    module.left = torch.tensor(3, dtype=module.left.dtype)


def registered(module):
    module.register_buffer("left", torch.tensor(3, dtype=module.left.dtype))


def in_the_table(module):
    module._buffers["left"] = torch.tensor(3, dtype=module.left.dtype)


def a_switch(module):
    module.left.fill_(4)


CHANGES = (in_place, data, fill_data, by_numpy, an_item, a_view_of_it, by_set, state_dict, assigned_state_dict, assignment)
CHANGES += (registered, in_the_table, a_switch)
OF_BUFFERS = (state_dict, assigned_state_dict, registered, in_the_table)


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("as_buffers", [True, False], ids=["buffers", "attributes"])
def test_changes_are_seen(change, as_buffers):
    if not as_buffers and change in OF_BUFFERS:
        return
    module = Padded(as_buffers=as_buffers)
    graphs = Graphs(module, fullgraph=True)
    for _ in range(2):
        check(module, graphs.compiled)
    assert graphs.count == 1
    change(module)
    for _ in range(2):
        check(module, graphs.compiled)
    assert graphs.count == 2


@pytest.mark.parametrize("dtype", sorted(DTYPES - {torch.bool, torch.uint16, torch.uint32, torch.uint64}, key=str), ids=str)
def test_dtypes(dtype):
    module = Padded(dtype)
    graphs = Graphs(module, fullgraph=True)
    for left in (2, 3, 2):
        module.left.fill_(left)
        check(module, graphs.compiled)
    assert graphs.count == 2


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_each_dtype_as_a_number(dtype):
    module = nn.Module()
    module.register_buffer("n", torch.tensor([1, 0], dtype=dtype))
    module.forward = lambda x: x * 2 if module.n.tolist()[0] else x + 1
    graphs = Graphs(module.forward, fullgraph=True)
    for first in (1, 0, 1):
        module.n.copy_(torch.tensor([first, 1 - first], dtype=dtype))
        check(module.forward, graphs.compiled)
    assert graphs.count == 2


def test_many_values_stay_data():
    module = Padded()
    graphs = Graphs(module)
    counts = []
    for left in (2, 3, 5, 6, 7, 8):
        module.left.fill_(left)
        check(module, graphs.compiled)
        counts.append(graphs.count)
    assert counts[1] == 2
    assert counts[-1] == counts[-3]  # there are breaks, and graphs for all numbers


def test_a_module_of_two_functions():
    module = Padded()
    one, other = Graphs(lambda x: module(x), fullgraph=True), Graphs(lambda x: module(x * 1), fullgraph=True)
    for left in (2, 3, 2):
        module.left.fill_(left)
        check(module, one.compiled)
        check(module, other.compiled)
    assert (one.count, other.count) == (2, 2)


def test_modules_of_one_class_are_told_apart():
    modules = [Padded() for _ in range(4)]
    graphs = Graphs(Padded.forward, fullgraph=True)
    for number, module in enumerate(modules):
        module.left.fill_(number + 2)
    for module in [*modules, *modules]:
        check(module, lambda x, module=module: graphs.compiled(module, x))
    assert graphs.count == 4


class Counting(nn.Module):
    """Decides by what it writes to."""

    def __init__(self, before, through_a_view=False):
        super().__init__()
        self.register_buffer("sizes", torch.tensor([3, 8]))
        self.before, self.through_a_view = before, through_a_view

    def step(self):
        (self.sizes.view(-1)[:1] if self.through_a_view else self.sizes).add_(1)

    def forward(self, x):
        if self.before:
            self.step()
        y = x.flatten()[: sum(self.sizes.tolist())].clone()
        if not self.before:
            self.step()
        return nn.functional.pad(y, (0, self.sizes[0])), self.sizes.clone()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("through_a_view", [True, False])
def test_what_the_frame_writes_stays_data(before, through_a_view):
    plain, module = Counting(before, through_a_view), Counting(before, through_a_view)
    graphs, counts = Graphs(module), []
    for _ in range(6):
        torch.testing.assert_close(graphs.compiled(X), plain(X), rtol=0, atol=0)
        counts.append(graphs.count)
    torch.testing.assert_close(module.sizes, plain.sizes, rtol=0, atol=0)
    assert counts[-1] == counts[-2]


class Shared(nn.Module):
    """Has its numbers in an array of NumPy, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sizes", torch.tensor([2, 3]))
        self.array, self.whole = self.sizes.numpy(), self.sizes.view(2)


def by_an_array(self, x, other):
    self.array[0] += 1
    return nn.functional.pad(x, (self.sizes[0], self.sizes[1]))


def by_an_array_in_between(self, x, other):
    columns = self.sizes.tolist()[1]
    self.array[0] += 1
    return nn.functional.pad(x, (columns, self.sizes[0]))


def by_a_view(self, x, other):
    self.whole[0] += 1
    return nn.functional.pad(x, (self.sizes[0], self.sizes[1]))


def by_an_argument(self, x, other):
    other += 1
    return nn.functional.pad(x, (self.sizes[0], self.sizes[1]))


SHARED = (by_an_array, by_an_array_in_between, by_a_view, by_an_argument)


@pytest.mark.parametrize("of_numpy", [True, False])
@pytest.mark.parametrize("forward", SHARED, ids=lambda f: f.__name__)
def test_memory_that_is_written_elsewhere(forward, of_numpy):
    plain, module = Shared(), Shared()
    graphs = Graphs(forward)
    for _ in range(4):
        args, others = (torch.from_numpy(m.array) if of_numpy else m.whole[:1] for m in (module, plain))
        torch.testing.assert_close(graphs.compiled(module, X, args), forward(plain, X, others), rtol=0, atol=0)
        assert torch.equal(module.sizes, plain.sizes)


def images(x, sizes):
    """Each row as an image of its own size."""
    made = []
    for row, (height, width) in zip(x, sizes.tolist()):
        made.append(row[: height * width].view(height, width).sum(0))
    return made


def rows(x, sizes):
    return [x[0, : sum(sizes[i].tolist())] for i in range(len(sizes))]


def written_later(x, sizes):
    y = x[:, : sizes.tolist()[0][1]]
    sizes.view(-1).add_(1)
    return y, sizes * 1


LISTED = (images, rows, written_later)


@pytest.mark.parametrize("function", LISTED, ids=lambda f: f.__name__)
def test_lists_of_numbers_in_inputs(function):
    graphs, counts = Graphs(function), []
    for first in (2, 2, 3, 4, 5, 6, 2):
        sizes, same = (torch.tensor([[first, 3], [2, first]]) for _ in range(2))
        torch.testing.assert_close(graphs.compiled(X, sizes), function(X, same), rtol=0, atol=0)
        assert torch.equal(sizes, same)
        counts.append(graphs.count)
    if function is not written_later:
        assert counts[:2] == [1, 1]
        assert [guard.kind for guard in capture_and_check(function, X, torch.tensor([[2, 3], [2, 2]])).guards].count("DATA") == 1


def test_a_number_of_an_input_is_data():
    def function(x, n):
        return x * 2 if n.item() == 1 else x + 1

    graphs = Graphs(function)
    for first in (1, 2, 1, 3, 4, 5):
        torch.testing.assert_close(graphs.compiled(X, torch.tensor(first)), function(X, torch.tensor(first)), rtol=0, atol=0)
    assert graphs.count <= 2  # one for each branch


def test_what_is_computed_with_only_is_no_number():
    module = Counting(before=False)
    captured = capture_and_check(lambda x: x * module.sizes.sum() + module.sizes[0], X)
    assert not any(guard.kind == "DATA" for guard in captured.guards)


class PaddedFrames(nn.Module):
    """Pads to whole frames, as audio codecs do, by numbers that it keeps; `how` says what becomes of the number."""

    def __init__(self, how, stride, kernel):
        super().__init__()
        self.register_buffer("stride", torch.tensor(stride))
        self.register_buffer("kernel", torch.tensor(kernel))
        self.how = how

    def forward(self, x):
        length = x.shape[-1]
        frames = torch.ceil((length - self.kernel + 1) / self.stride + 1).to(torch.int64) - 1
        return self.how(x.sin(), frames * self.stride + self.kernel - length, length)


def pads(x, extra, length):
    return nn.functional.pad(x, (1, extra))


def branches(x, extra, length):
    return nn.functional.pad(x, (0, extra)) if extra < length else x.repeat(1, 2)


def asks(x, extra, length):
    return nn.functional.pad(x, (0, int(extra) + extra.item()))


def floors(x, extra, length):
    return nn.functional.pad(x, (0, torch.floor((length - extra) / 3).long()))


@pytest.mark.parametrize("how", [pads, branches, asks, floors], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("stride", "kernel"), [(1, 1), (2, 7), (5, 7), (7, 3)])
def test_numbers_out_of_open_sizes(how, stride, kernel):
    module = PaddedFrames(how, stride, kernel)
    graphs = Graphs(module, fullgraph=True)
    for length in (24, 31, *range(40, 62)):
        check(module, graphs.compiled, torch.arange(2.0 * length).view(2, length))
    assert graphs.count <= 4  # one for the first length, one for all, and what is at the edges of the paddings' sizes
    module.stride.add_(1)
    check(module, graphs.compiled, torch.arange(80.0).view(2, 40))


def test_quotients_of_large_sizes_are_left_to_torch():
    """Beyond 2**20 the rounding of the quotient may decide."""
    module = PaddedFrames(lambda x, extra, length: nn.functional.pad(x[:, :8], (0, extra)), 3, 1)
    graphs = Graphs(module)
    for length in (40, 50, 60, 2**24 + 5, 2**24 + 7, 2**24 + 9, 61):
        check(module, graphs.compiled, torch.zeros(1).expand(1, length))


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 320, 441, 1000, 2**16 - 1, 2**20])
def test_rounding_of_quotients(divisor):
    """What the formulas take for granted: up to SMALL, floats round to the whole numbers that integers give."""
    numbers = torch.cat([torch.arange(-2000, 2000), torch.arange(SMALL - 4000, SMALL + 1)])
    numbers = torch.cat([numbers, torch.arange(0, SMALL + 1, divisor)[:4000], (torch.arange(1, SMALL + 1, divisor) - 2)[:4000]])
    for added in (-(SMALL // divisor), -1, 1, SMALL // divisor):
        rounded = numbers / divisor + added + added
        assert torch.equal(rounded.ceil().long(), -(-numbers // divisor) + 2 * added)
        assert torch.equal(rounded.floor().long(), numbers // divisor + 2 * added)
