"""DTensors in compiled functions, and models that parallelize_module splits, in two processes: one graph each, with eager's values, classes,
placements and gradients, and equal graphs on both ranks."""

import contextlib
import hashlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import tracework
from ranks import in_ranks, of_all_ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from tracework_capture import DynamicDimError
from tracework_capture.guards.kinds import STATES
from tracework_primops.fake.distributed import open_distributed_sizes
from tracework_runtime import counters

MESH: DeviceMesh
STEPS = 3


# --- functions of a DTensor ---------------------------------------------------------------------------------------------


def products(d):
    return d @ d.t()


def local(d):
    return d.sin().to_local().cos()


def whole(d):
    return d.sin().full_tensor().cos() * d.size(0)


def sum_over_processes(d):
    return d.sum(0)


def replicated(d):
    return d.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]).square()


def asks(d):
    return d * d.device_mesh.size() + (d.placements[0].is_shard() if d.placements != (Replicate(),) else 2)


def made_inside(d):
    local = DTensor.from_local(d.to_local().sin(), MESH["all"], [Partial()])
    return local.redistribute(placements=[Replicate()]).cos(), distribute_tensor(
        torch.ones(2, 4), MESH, [Shard(1)], src_data_rank=None
    )


def rows_by_size(d):
    return d.softmax(-1) * d.size(0) + d[1:].mean()


def moved(d):
    return d.redistribute(placements=[Shard(1)]).sin(), torch.cat([d, d * 2]).t().contiguous()


def flattened(d):
    return d.flatten() + 1, d.view(-1, 2, 3)[:2].exp()


def drawn(d):
    d.clone().normal_()  # which draws, too, though nobody reads it
    return F.dropout(d, 0.5) + torch.rand_like(d)


def sent_by_one(d):
    own = torch.arange(15.0).reshape(5, 3) + d.to_local().detach().sum()
    return distribute_tensor(own, MESH, [Shard(0)]) * 2, distribute_tensor(own, MESH, src_data_rank=1).sum() + d.sum()


def made_of_nothing(d):
    zeros = torch.distributed.tensor.zeros(4, 6, device_mesh=MESH, placements=d.placements)
    return zeros + d, torch.distributed.tensor.full((2, 2), 3.0, device_mesh=MESH)


FUNCTIONS = [products, local, whole, sum_over_processes, replicated, asks, made_inside, drawn, sent_by_one, made_of_nothing]
OF_ANY_SIZE = [products, local, whole, sum_over_processes, replicated, rows_by_size, moved, flattened, drawn]
PLACEMENTS = [Shard(0), Shard(1), Replicate()]
ROWS = [4, 6, 10, 8, 5, 7]
"""Numbers of rows; five and seven are not the same on both ranks."""
APART = {
    (flattened, Shard(1)): "rows of which each rank has a part have no open sizes when they are flattened",
}
"""Function and placement -> why each size is compiled by itself."""


def data(placement: Any, rows: int = 4) -> Any:
    whole = torch.arange(6.0 * rows).reshape(rows, 6) / 10
    return distribute_tensor(whole, MESH, [placement], src_data_rank=None).requires_grad_()


def run(f: Callable[..., Any], placement: Any, rows: int = 4) -> list[Any]:
    """Results, and the gradient."""
    d = data(placement, rows)
    torch.manual_seed(dist.get_rank())
    found = f(d)
    results = list(found) if isinstance(found, tuple) else [found]
    sum(plain(result, whole=True).square().sum() for result in results).backward()
    return [*results, d.grad]


def plain(tensor: Any, whole: bool = False) -> torch.Tensor:
    if not isinstance(tensor, DTensor):
        return tensor + 0
    return (tensor.full_tensor() if whole else tensor.to_local()) + 0


def check(found: list[Any], expected: list[Any], what: str) -> None:
    for f, e in zip(found, expected, strict=True):
        assert isinstance(f, DTensor) == isinstance(e, DTensor), what
        if isinstance(e, DTensor):
            facts = [(t.placements, t.shape, t.stride(), t.requires_grad, t.device_mesh) for t in (f, e)]
            assert facts[0] == facts[1], (what, facts)
        torch.testing.assert_close(plain(f), plain(e), msg=lambda text: f"{what}: {text}")


# --- models -------------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        heads = (layer(x).unflatten(2, (-1, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.attention, self.mlp = nn.LayerNorm(8), nn.LayerNorm(8), Attention(), MLP()

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.block, self.norm, self.head = nn.Embedding(16, 8), Block(), nn.LayerNorm(8), nn.Linear(8, 16)

    def forward(self, tokens):
        return self.head(self.norm(self.block(self.embedding(tokens))))


def columns_and_rows() -> tuple[nn.Module, torch.Tensor]:
    """Distributed tensors between the layers, and as the result."""
    plan: Any = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel(use_local_output=False)}
    return parallelize_module(MLP(), MESH, plan), torch.randn(4, 8)


def sequences() -> tuple[nn.Module, torch.Tensor]:
    """All that a transformer has: rows and columns, sequences split between, inputs prepared."""
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan: Any = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        **{name: SequenceParallel() for name in ("block.first", "block.second", "norm")},
        **{f"block.{name}": gathered for name in ("attention", "mlp")},
        **{f"block.{name}": ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")},
        **{f"block.{name}": RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.out", "mlp.down")},
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    return parallelize_module(Language(), MESH, plan), torch.randint(16, (2, 6))


def train(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
    """The same steps of a plain model and a compiled one."""
    torch.manual_seed(0)
    expected, x = make()
    torch.manual_seed(0)
    model, _ = make()
    compiled = tracework.compile(model, fullgraph=True)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (expected, model)]
    for step in range(STEPS):
        before = counters().get("load", 0)
        results = expected(x), compiled(x)
        check([results[1]], [results[0]], make.__name__)
        for result in results:
            plain(result, whole=True).square().sum().backward()
        for (name, p), q in zip(expected.named_parameters(), model.parameters(), strict=True):
            check([q.grad], [p.grad], f"{make.__name__}, {name}, step {step}")
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert (loaded := counters().get("load", 0) - before) == (0 if step else 2), (make.__name__, step, loaded)


def any_size(f: Callable[..., Any], placement: Any) -> None:
    """The second size makes a graph for all that are shared evenly."""
    graphs: list[Any] = []
    compiled = tracework.compile(f, backend=lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)
    for count, rows in enumerate(ROWS, 1):
        try:
            expected = run(f, placement, rows)
        except RuntimeError:  # torch flattens no uneven rows
            continue
        check(run(compiled, placement, rows), expected, f"{f.__name__} of {placement}, {rows} rows")
        if rows == 8:
            apart = not open_distributed_sizes() or (f, placement) in APART
            assert len(graphs) == (count if apart else 2), (f.__name__, placement, len(graphs))


def marked() -> None:
    """A mark counts for the parts of a tensor, and is refused where ranks have parts of several sizes."""
    graphs: list[Any] = []
    compiled = tracework.compile(rows_by_size, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for rows in (4, 6):
        d = data(Shard(0), rows)
        tracework.compiler.mark_dynamic(d, 0)
        check([compiled(d)], [rows_by_size(d)], "marked")
    assert len(graphs) == 1
    d = data(Shard(0), 5)
    tracework.compiler.mark_dynamic(d, 0)
    with pytest.raises(DynamicDimError, match="its parts are of several sizes"):
        compiled(d)


def loss_in_parts() -> None:
    """What is compiled under loss_parallel() is for calls under it."""
    compiled = tracework.compile(lambda d, target: F.cross_entropy(d, target), fullgraph=True)
    target = torch.tensor([0, 2, 4, 1])
    for within in (True, False, True):
        d, e = data(Shard(1)), data(Shard(1))
        with loss_parallel() if within else contextlib.nullcontext():
            losses = [
                F.cross_entropy(d, target if within else whole_of(target)),
                compiled(e, target if within else whole_of(target)),
            ]
            for loss in losses:
                loss.backward()
        check([losses[1], e.grad], [losses[0], d.grad], f"a loss, within {within}")


def loss_inside() -> None:
    """A block of loss_parallel() in the compiled function is part of its graph; a backward in it breaks that, as every backward to DTensors."""

    def loss(d: Any, target: torch.Tensor) -> torch.Tensor:
        with loss_parallel():
            return F.cross_entropy(d * 2, target)

    def step(d: Any, target: torch.Tensor) -> torch.Tensor:
        with loss_parallel():
            found = F.cross_entropy(d * 2, target)
            found.backward()
        return found.detach()

    target, handlers = torch.tensor([0, 2, 4, 1]), STATES["handlers_of_distributed"]()
    for f in (loss, step):
        plain, compiled = data(Shard(1)), data(Shard(1))
        results = [f(plain, target), tracework.compile(f, fullgraph=f is loss)(compiled, target)]
        for result in results if f is loss else ():
            with loss_parallel():
                result.backward()
        check([results[1], compiled.grad], [results[0], plain.grad], f"a loss of its own block, {f.__name__}")
        assert STATES["handlers_of_distributed"]() == handlers


def leaves_of_two_kinds() -> None:
    """A backward in the compiled function, to a DTensor and a plain tensor."""

    def step(d: Any, weight: torch.Tensor) -> None:
        (d.to_local().sin() * weight).sum().backward()

    grads = []
    for f in (step, tracework.compile(step)):
        d, weight = data(Shard(0)), torch.ones(2, 6, requires_grad=True)
        f(d, weight)
        grads.append([d.grad, weight.grad])
    check(grads[1], grads[0], "leaves of two kinds")


@torch.library.custom_op("distributed_tensors::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("distributed_tensors::doubled_backward", mutates_args=())
def doubled_backward(x: torch.Tensor) -> torch.Tensor:
    return x * 2


for _operator in (doubled, doubled_backward):
    _operator.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, gradient: torch.ops.distributed_tensors.doubled_backward(gradient))


def history_outside() -> None:
    """Gradients in the compiled function of what a DTensor was made of outside."""

    def of_plain(weight: torch.Tensor, d: Any) -> Any:
        return torch.autograd.grad((d.to_local() * weight).sum(), weight)

    def of_distributed(weight: torch.Tensor, d: Any) -> Any:
        return torch.autograd.grad((d.to_local() * weight).sum(), d)

    def accumulated(weight: torch.Tensor, d: Any) -> Any:
        (d.to_local() * weight).sum().backward(inputs=[weight])
        return [weight.grad]

    for f in (of_plain, of_distributed, accumulated):
        found = []
        for call in (f, tracework.compile(f)):
            weight = torch.full((2, 2), 3.0, requires_grad=True)
            found.append(call(weight, DTensor.from_local(weight * 2, MESH, [Shard(0)], run_check=False)))
        check(found[1], found[0], f.__name__)


KINDS: dict[int, list[Any]] = {}


def sizes_are_numbers_in_backwards() -> None:
    """How an operator of a backward is shared may be a question that symbols do not answer: it is asked with numbers."""
    register_sharding(torch.ops.distributed_tensors.doubled.default)(lambda x: [([Shard(0)], [Shard(0)])])
    register_sharding(torch.ops.distributed_tensors.doubled_backward.default)(
        lambda x: KINDS.setdefault(x.shape[0], [([Shard(0)], [Shard(0)])])
    )

    def function(d: Any) -> torch.Tensor:
        return doubled(d).sin()

    compiled = tracework.compile(function, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tracework.UncompiledWarning)
        for rows in (4, 6, 8):
            before = counters().get("load", 0)
            check(run(compiled, Shard(0), rows), run(function, Shard(0), rows), f"a backward with {rows} rows")
            assert counters().get("load", 0) == before + 2


def whole_of(tensor: torch.Tensor) -> DTensor:
    return distribute_tensor(tensor, MESH, [Replicate()], src_data_rank=None)


def compare(rank: int) -> None:
    """All of it, in one of two processes."""
    global MESH
    warnings.simplefilter("ignore")
    MESH = init_device_mesh("cpu", (2,), mesh_dim_names=("all",))
    texts: list[str] = []
    for f in FUNCTIONS:
        for placement in (Shard(0), Replicate()):
            compiled = tracework.compile(f, backend=lambda gm, inputs: texts.append(gm.code) or gm.forward, fullgraph=True)
            check(run(compiled, placement), run(f, placement), f"{f.__name__} of {placement}, as captured")
    for f, placement in itertools.product(OF_ANY_SIZE, PLACEMENTS):
        any_size(f, placement)
    if open_distributed_sizes():
        marked()
    loss_in_parts()
    loss_inside()
    leaves_of_two_kinds()
    history_outside()
    sizes_are_numbers_in_backwards()
    compiled = tracework.compile(rows_by_size, fullgraph=True)
    for rows in (4, 6, 8):
        check(run(compiled, Shard(0), rows), run(rows_by_size, Shard(0), rows), f"{rows} rows")
    for f in (whole, sum_over_processes, replicated, made_inside, drawn, sent_by_one):
        check(run(tracework.compile(f, fullgraph=True), Shard(0)), run(f, Shard(0)), f.__name__)
    for make in (columns_and_rows, sequences):
        train(make)
    digests = of_all_ranks(hashlib.sha256("".join(texts).encode()).hexdigest())
    assert len(texts) == 2 * len(FUNCTIONS) and digests[0] == digests[1], "ranks have other graphs"


def test_distributed_tensors_in_two_processes(tmp_path):
    in_ranks(compare, tmp_path)
