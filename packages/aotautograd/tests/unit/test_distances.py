"""Which values are proven to depend on two indices by their distance alone."""

import pytest
import torch
import torch.nn.functional as F
from tracework_aotautograd.trace.distances import is_of_distances
from tracework_primops import aten_graph

N = 12
TABLE, ROW = torch.randn(40, 3), torch.randn(N)


def places(step=1):
    return torch.arange(0, N * step, step)


def distance():
    return places()[None, :] - places()[:, None]


def of_places(places):
    """Differences of all pairs."""
    return places[None, :] - places[:, None]


# function of (table of 40 rows, row of N elements) -> whether its last two dims are known to matter by their distance alone
CASES = {
    "a distance": (lambda x, row: distance(), True),
    "of a tensor that is neither's": (lambda x, row: x[:1, :1] * 2 + distance(), True),
    "a sum": (lambda x, row: places()[None, :] + places()[:, None], False),
    "other steps": (lambda x, row: places(2)[None, :] - places()[:, None], False),
    "equal steps": (lambda x, row: places(2)[None, :] - places(2)[:, None], True),
    "a key": (lambda x, row: places()[None, :].expand(N, N), False),
    "data of a key": (lambda x, row: row[None, :] + distance(), False),
    "buckets": (lambda x, row: F.embedding(distance().abs().clamp(max=7) + 8 * (distance() > 0), x).permute(2, 0, 1), True),
    "rows of a table": (lambda x, row: x[distance() + N].permute(2, 0, 1)[None], True),
    "columns of a table": (lambda x, row: x.T[:, distance() + N], True),
    "a table of positions": (lambda x, row: x[places()[:, None] + 0 * distance()].permute(2, 0, 1), False),
    "a comparison": (lambda x, row: torch.where(places()[:, None] >= places()[None, :], 0.0, x[0, 0]), True),
    "a comparison with a number": (lambda x, row: torch.where(places()[:, None].expand(N, N) >= 3, 0.0, x[0, 0]), False),
    "turned": (lambda x, row: (distance() * 2 + 1).float().log1p().mT.unsqueeze(0).clone(), True),
    "logarithms": (lambda x, row: ((distance().float().abs() / 3 + 1).log() * 4).long(), True),
    "along other dims": (lambda x, row: distance()[:, :, None].expand(N, N, N), False),
    "random numbers": (lambda x, row: torch.rand_like(distance().float()), False),
    "rounded places": (lambda x, row: of_places(torch.arange(600, dtype=torch.bfloat16)), False),
    "rounded sums": (lambda x, row: of_places((torch.arange(600.0) + 0.1).long()), False),
    "rounded sums of integers": (lambda x, row: of_places(torch.arange(600) + 0.1), False),
    "integers made floats": (lambda x, row: of_places(torch.arange(600).bfloat16()), False),
    "integers that wrap": (lambda x, row: of_places(torch.arange(600).to(torch.uint8)), False),
    "sums that wrap": (lambda x, row: of_places(torch.arange(100, dtype=torch.int8)) > 0, False),
    "compared after rounding": (
        lambda x, row: torch.arange(600)[:, None].half() >= torch.arange(600)[None, :].half() * 1,
        False,
    ),
    "places made floats afterwards": (lambda x, row: distance().float() * 0.1, True),
    "of sums": (lambda x, row: torch.cumsum(distance(), 1), False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_known(name):
    function, known = CASES[name]
    graph = aten_graph(function, TABLE, ROW)
    (*_, output) = graph.graph.nodes
    assert is_of_distances(output.args[0][0]) is known
    value = function(TABLE, ROW).double().nan_to_num(nan=-1.0)
    diagonals = [value.diagonal(d, -2, -1) for d in range(1 - value.shape[-2], value.shape[-1])]
    assert not known or all(torch.equal(d, d[..., :1].expand(d.shape)) for d in diagonals)
