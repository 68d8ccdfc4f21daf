"""Strides that are no products of sizes and change, as those of a part of memory that grows: symbols from the second one on."""

import pytest
import torch
import tracework_capture

PARTS = {
    "rows of a cache that grows": lambda n: torch.randn(2, 2, n, 4)[:, :, :3],
    "with their number": lambda n: torch.randn(2, 2, n, 4)[:, :, : n - 1],
    "of one batch": lambda n: torch.randn(1, 2, n, 4)[:, :, :-1],
    "columns": lambda n: torch.randn(5, n)[:, :3],
    "columns, transposed": lambda n: torch.randn(5, n)[:, :3].t(),
    "two strides": lambda n: torch.randn(3, n, 2 * n)[:, :3, :4],
    "a diagonal": lambda n: torch.randn(n, n).diagonal()[:3],
    "every so many": lambda n: torch.randn(4 * n)[::n],
    "heads beside each other": lambda n: torch.randn(2, 3, n * 4).view(2, 3, n, 4)[:, :, 1].unsqueeze(1),
}


def program(x):
    return x.relu().sum(-1) + x.mean() * x.shape[0], x.transpose(0, -1) * 2, x[..., :1].contiguous()


def number_of_graphs(given, **options):
    made = []
    compiled = tracework_capture.optimize(lambda gm, inputs: made.append(gm) or gm.forward, **options)(program)
    for x in given:
        found, expected = compiled(x), program(x)
        assert [t.stride() for t in found] == [t.stride() for t in expected]
        torch.testing.assert_close(found, expected)
    return len(made)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_the_second_graph_is_for_all(part):
    assert number_of_graphs([part(n) for n in range(6, 14)]) == 2


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_without_dynamic_sizes_each_is_compiled(part):
    assert number_of_graphs([part(n) for n in range(6, 10)], dynamic=False) == 4


def test_layouts_without_gaps_are_compiled_by_themselves():
    x = torch.randn(2, 3, 4, 5)
    layouts = [x, x.to(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3)]
    assert number_of_graphs(layouts * 2) == 3


def test_two_parts_of_one_stride_and_of_others():
    """Nothing says that they are equal."""
    made = []
    compiled = tracework_capture.optimize(lambda gm, inputs: made.append(gm) or gm.forward)(lambda x, y: x + y)
    for n, m in ((6, 6), (7, 7), (8, 9), (10, 10)):
        x, y = torch.randn(5, n)[:, :3], torch.randn(5, m)[:, :3]
        assert torch.equal(compiled(x, y), x + y)
    assert len(made) == 2


def test_strides_that_the_program_reads():
    made = []
    compiled = tracework_capture.optimize(lambda gm, inputs: made.append(gm) or gm.forward)(lambda x: (x * 2, x.stride(0)))
    for n in range(6, 11):
        x = torch.randn(5, n)[:, :3]
        assert compiled(x)[1] == n
    assert len(made) == 2


@pytest.mark.parametrize(
    "write", [lambda x: x[:, 1:].add_(x[:, :-1]), lambda x: x.t()[:2].mul_(x.t()[1:3]), lambda x: x[:, :1].add_(x[:, 1:2])]
)
def test_writes_to_memory_that_is_read_in_part_are_left_to_eager(write):
    """Also where nothing but a stride is a symbol."""
    compiled = tracework_capture.optimize(lambda gm, inputs: gm.forward)(write)
    for n in range(6, 10):
        seen = []
        for run in (write, compiled):
            x = torch.arange(5.0 * n).reshape(5, n)
            try:
                seen.append((run(x[:, :4]).tolist(), x.tolist()))
            except RuntimeError as error:
                seen.append((str(error)[:40], x.tolist()))
        assert seen[0] == seen[1]


def test_strides_of_what_is_marked_static_are_not_opened():
    given = [torch.randn(5, n)[:, :3] for n in range(6, 10)]
    for x in given:
        tracework_capture.mark_static(x)
    assert number_of_graphs(given) == 4
