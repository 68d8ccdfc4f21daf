"""DTensors in one process: what is a node, a constant, or left to eager."""

import pytest
import torch
import torch.distributed as dist
import tracework_capture as capture
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

MESH = None


@pytest.fixture(autouse=True)
def mesh():
    global MESH
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    MESH = init_device_mesh("cpu", (1,), mesh_dim_names=("all",))
    yield
    dist.destroy_process_group()


def compiled(f, seen):
    return capture.optimize(lambda gm, inputs: seen.append(inputs) or gm.forward, fullgraph=True)(f)


def tensor(*sizes, placement=None):
    return DTensor.from_local(torch.rand(*sizes), MESH, [placement or Shard(0)])


FUNCTIONS = {
    "operators": lambda d: d.sin() @ d.t(),
    "constants": lambda d: d * d.device_mesh.size() if d.placements == (Shard(0),) else d,
    "by name": lambda d: d.redistribute(MESH["all"], [Replicate()]),
    "to plain": lambda d: (d.to_local() + 1, d.full_tensor() * 2),
    "made": lambda d: (
        DTensor.from_local(d.to_local(), MESH, [Partial()]),
        distribute_tensor(torch.ones(2), MESH, src_data_rank=None),
    ),
    "sent": lambda d: distribute_tensor(torch.ones(2), MESH, [Shard(0)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph(name):
    seen, d = [], tensor(4, 4)
    found, expected = compiled(FUNCTIONS[name], seen)(d), FUNCTIONS[name](d)
    for f, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        assert isinstance(f, DTensor) == isinstance(e, DTensor) and getattr(f, "placements", 0) == getattr(e, "placements", 0)
        torch.testing.assert_close(
            f.to_local() if isinstance(f, DTensor) else f, (e.to_local() if isinstance(e, DTensor) else e) + 0
        )
    assert len(seen) == 1 and all(type(x) is torch.Tensor for x in seen[0])


def test_guards():
    seen = []
    f = compiled(lambda d: d + 1, seen)
    for d, graphs in ((tensor(4), 1), (tensor(4), 1), (tensor(4, placement=Replicate()), 2), (tensor(6), 3), (tensor(8), 3)):
        f(d)
        assert len(seen) == graphs
    assert [type(x) for x in seen[-1]] == [int, torch.Tensor], "another size is a symbol"


def test_what_is_left_to_eager():
    with pytest.raises(capture.Unsupported):
        compiled(lambda d: DTensor.from_local(torch.ones(2), MESH, [Shard(0)], run_check=True), [])(tensor(4))
