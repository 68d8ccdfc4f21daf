"""Whole training steps as programs write them, compiled: values are eager's after five steps, and few graphs.

Each row has how many graphs the first call is here, and how many torch.compile makes of it (torch 2.13, its forwards alone: backwards come
beside them), for comparison.
"""

import copy
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch import nn, optim
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

STEPS = 5


class Net(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.first, self.norm, self.last, self.drop = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3), drop

    def forward(self, x):
        return self.last(F.dropout(F.gelu(self.norm(self.first(x))), self.drop, self.training))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(20, 6, sparse=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.table((x * 3).long().clamp(-9, 9) + 10).mean(1))


Step = Callable[[torch.Tensor, torch.Tensor], Any]
Made = tuple[Step, nn.Module]
"""A step, and a module that has all that it changes."""


def step_of(model, optimizer, after=lambda loss: None, before=lambda: None, loss_of=None) -> Step:
    """before: between the backward and the optimizer's step; after: at the end."""

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) if loss_of is None else loss_of(x, y)
        loss.backward()
        found = before()
        optimizer.step()
        after(loss.detach())
        return loss.detach(), found

    return step


def with_optimizer(make: Callable[..., optim.Optimizer]) -> Callable[[], Made]:
    def made():
        model = Net(0.3)
        return step_of(model, make(model.parameters())), model

    return made


def in_groups(parameters):
    weights, others = [], []
    for p in parameters:
        (weights if p.ndim > 1 else others).append(p)
    return optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 1e-3}], lr=1e-2)


def clipped(clip: Callable[[list[nn.Parameter]], Any]) -> Callable[[], Made]:
    def made():
        model = Net()
        parameters = list(model.parameters())
        return step_of(model, optim.AdamW(parameters, lr=1e-2), before=lambda: clip(parameters)), model

    return made


def by_total_norm(parameters):
    total = nn.utils.get_total_norm([p.grad for p in parameters])
    nn.utils.clip_grads_with_norm_(parameters, 0.1, total)
    return total


def scheduled(make: Callable[..., Any], by_loss: bool = False) -> Callable[[], Made]:
    def made():
        model = Net()
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        schedule = make(optimizer)
        return step_of(model, optimizer, after=lambda loss: schedule.step(loss) if by_loss else schedule.step()), model

    return made


def scaled(clip: bool = False, scale: float = 1024.0, **arguments: Any) -> Callable[[], Made]:
    def made():
        model = Net()
        optimizer = optim.AdamW(model.parameters(), lr=1e-2, **arguments)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step, model

    return made


def averaged(**arguments: Any) -> Callable[[], Made]:
    def made():
        model = Net()
        mean = AveragedModel(model, **arguments)
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        return step_of(model, optimizer, after=lambda loss: mean.update_parameters(model)), nn.ModuleList([model, mean])

    return made


def averaged_by_hand() -> Made:
    model = Net()
    mean = copy.deepcopy(model)

    @torch.no_grad()
    def average(loss):
        for a, b in zip(mean.parameters(), model.parameters(), strict=True):
            a.mul_(0.9).add_(b, alpha=0.1)

    return step_of(model, optim.AdamW(model.parameters(), lr=1e-2), after=average), nn.ModuleList([model, mean])


def of_closure(make: Callable[..., optim.Optimizer]) -> Callable[[], Made]:
    def made():
        model = Net()
        optimizer = make(model.parameters())

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        return step, model

    return made


def of_sparse_gradients() -> Made:
    model = Words()
    sparse, dense = optim.SparseAdam(list(model.table.parameters()), lr=1e-2), optim.AdamW(model.last.parameters(), lr=1e-2)

    def step(x, y):
        sparse.zero_grad()
        dense.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        sparse.step()
        dense.step()
        return loss.detach()

    return step, model


def accumulated() -> Made:
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        total = 0
        for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
            loss = F.cross_entropy(model(part), target) / 4
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step, model


def every_second() -> Made:
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    count = [0]

    def step(x, y):
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        count[0] += 1
        if count[0] % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, model


def hooked(put: Callable[[Net], Any]) -> Callable[[], Made]:
    def made():
        model = Net()
        put(model)
        return step_of(model, optim.AdamW(model.parameters(), lr=1e-2)), model

    return made


def full_hooks(model):
    model.norm.register_full_backward_hook(lambda module, into, out: None)
    model.last.register_full_backward_hook(lambda module, into, out: (into[0] * 2,))


def in_the_backward() -> Made:
    model = Net()
    for p in model.parameters():
        optimizer = optim.SGD([p], lr=0.1)

        def hook(t, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        p.register_post_accumulate_grad_hook(hook)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    return step, model


def with_statistics() -> Made:
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    return step_of(model, optim.AdamW(model.parameters(), lr=1e-2)), model


def checkpointed() -> Made:
    model = Net(0.3)

    def loss(x, y):
        return F.cross_entropy(checkpoint(model, x, use_reentrant=False), y)

    return step_of(model, optim.AdamW(model.parameters(), lr=1e-2), loss_of=loss), model


def kept_on_the_cpu() -> Made:
    model = Net(0.3)

    def loss(x, y):
        with torch.autograd.graph.save_on_cpu():
            return F.cross_entropy(model(x), y)

    return step_of(model, optim.AdamW(model.parameters(), lr=1e-2), loss_of=loss), model


def two_players() -> Made:
    maker, judge = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    makers, judges = (optim.Adam(m.parameters(), lr=1e-2) for m in (maker, judge))

    def step(x, y):
        made = maker(x)
        judges.zero_grad()
        first = F.softplus(judge(made.detach())).mean() + F.softplus(-judge(x)).mean()
        first.backward()
        judges.step()
        makers.zero_grad()
        second = F.softplus(-judge(made)).mean()
        second.backward()
        makers.step()
        return first.detach(), second.detach()

    return step, nn.ModuleList([maker, judge])


def penalized() -> Made:
    model = Net()

    def loss(x, y):
        x = x.clone().requires_grad_()
        out = model(x)
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.cross_entropy(out, y) + gradient.square().sum()

    return step_of(model, optim.AdamW(model.parameters(), lr=1e-2), loss_of=loss), model


def skipped_where_not_finite() -> Made:
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
            optimizer.step()
        return loss.detach()

    return step, model


def with_a_number() -> Made:
    model = Net()
    step = step_of(model, optim.AdamW(model.parameters(), lr=1e-2))
    return lambda x, y: step(x, y)[0].item(), model


def sharpness_aware() -> Made:
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        parameters = list(model.parameters())
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in parameters]
            torch._foreach_add_(parameters, moves)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(parameters, moves)
        optimizer.step()
        return loss.detach()

    return step, model


@dataclass(frozen=True)
class Row:
    """graphs: of the first call. all: captured in five steps, with those after the optimizer has made its state. uncompiled: whether tensor
    operations run uncompiled, with a warning. breaks: why there is more than one graph."""

    make: Callable[[], Made]
    graphs: int
    torchs: int
    all: int
    breaks: frozenset[str] = frozenset()
    uncompiled: bool = False


ITEM, BRANCH, HOOK = frozenset({"tensor_to_python"}), frozenset({"data_dependent_branch"}), frozenset({"hook"})
ROWS = {
    "SGD": Row(with_optimizer(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)), 1, 3, 2),
    "AdamW": Row(with_optimizer(lambda p: optim.AdamW(p, lr=1e-2)), 1, 3, 2),
    "AdamW, foreach": Row(with_optimizer(lambda p: optim.AdamW(p, lr=1e-2, foreach=True)), 1, 3, 2),
    "AdamW, fused": Row(with_optimizer(lambda p: optim.AdamW(p, lr=1e-2, fused=True)), 1, 2, 2),
    "AdamW, groups": Row(with_optimizer(in_groups), 1, 3, 2),
    "RMSprop": Row(with_optimizer(lambda p: optim.RMSprop(p, lr=1e-2, momentum=0.5, centered=True)), 1, 3, 2),
    "RAdam": Row(with_optimizer(lambda p: optim.RAdam(p, lr=1e-2)), 1, 3, 2),
    "Adafactor": Row(with_optimizer(lambda p: optim.Adafactor(p, lr=1e-2)), 1, 2, 2),
    "Rprop": Row(with_optimizer(lambda p: optim.Rprop(p, lr=1e-2)), 1, 3, 2),
    "AdamW, of a closure": Row(of_closure(lambda p: optim.AdamW(p, lr=1e-2)), 1, 3, 2),
    "LBFGS": Row(of_closure(lambda p: optim.LBFGS(p, lr=0.1, max_iter=4)), 6, 1, 6, BRANCH, True),
    "SparseAdam": Row(of_sparse_gradients, 3, 3, 6, frozenset({"tensor_layout", "loop_goes_on"}), True),
    "GradScaler": Row(scaled(), 3, 3, 5, ITEM),
    "GradScaler, fused": Row(scaled(fused=True), 1, 2, 2),
    "GradScaler, clipped": Row(scaled(clip=True), 3, 4, 5, ITEM),
    "GradScaler, infinite": Row(scaled(scale=3e38), 3, 3, 5, ITEM),
    "norm": Row(clipped(lambda p: nn.utils.clip_grad_norm_(p, 0.1)), 1, 4, 2),
    "norm, foreach": Row(clipped(lambda p: nn.utils.clip_grad_norm_(p, 0.1, foreach=True)), 1, 4, 2),
    "norm, finite": Row(clipped(lambda p: nn.utils.clip_grad_norm_(p, 0.1, error_if_nonfinite=True)), 1, 2, 2),
    "norm, largest": Row(clipped(lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf"))), 1, 4, 2),
    "norm, in two calls": Row(clipped(by_total_norm), 1, 4, 2),
    "value": Row(clipped(lambda p: nn.utils.clip_grad_value_(p, 0.01, foreach=True)), 1, 4, 2),
    "accumulation": Row(accumulated, 1, 2, 2),
    "accumulation, by a counter": Row(every_second, 1, 2, 4),
    "ExponentialLR": Row(scheduled(lambda o: schedulers.ExponentialLR(o, 0.9)), 1, 3, 2),
    "CosineAnnealingLR": Row(scheduled(lambda o: schedulers.CosineAnnealingLR(o, 10)), 1, 3, 2),
    "OneCycleLR": Row(scheduled(lambda o: schedulers.OneCycleLR(o, 1e-2, total_steps=20)), 1, 3, 2),
    "LambdaLR": Row(scheduled(lambda o: schedulers.LambdaLR(o, lambda n: min(1.0, (n + 1) / 3))), 1, 3, 2),
    "StepLR": Row(scheduled(lambda o: schedulers.StepLR(o, 2)), 1, 3, 4),
    "SequentialLR": Row(
        scheduled(lambda o: schedulers.SequentialLR(o, [schedulers.LinearLR(o), schedulers.CosineAnnealingLR(o, 10)], [3])),
        1,
        3,
        5,
    ),
    "ReduceLROnPlateau": Row(scheduled(lambda o: schedulers.ReduceLROnPlateau(o, patience=1), by_loss=True), 3, 4, 7, BRANCH),
    "mean of models": Row(averaged(), 1, 3, 2),
    "moving mean of models": Row(averaged(multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True), 1, 3, 2),
    "moving mean by hand": Row(averaged_by_hand, 1, 3, 2),
    "backward hooks of modules": Row(hooked(full_hooks), 3, 5, 5, HOOK),
    "backward pre-hooks of modules": Row(
        hooked(lambda m: m.last.register_full_backward_pre_hook(lambda module, out: (out[0] * 2,))), 3, 5, 5, HOOK
    ),
    "optimizer in the backward": Row(in_the_backward, 1, 8, 1),
    "statistics": Row(with_statistics, 1, 3, 2),
    "checkpoint": Row(checkpointed, 1, 3, 2),
    "save_on_cpu": Row(kept_on_the_cpu, 2, 2, 4, HOOK),
    "two players": Row(two_players, 1, 6, 2),
    "gradient penalty": Row(penalized, 1, 5, 2),
    "skipped where not finite": Row(skipped_where_not_finite, 2, 4, 4, BRANCH),
    "loss as a number": Row(with_a_number, 1, 2, 2),
    "sharpness-aware": Row(sharpness_aware, 1, 6, 2),
}


def data(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)


def trained(row: Row, wrap: Callable[[Step], Step], steps: int = STEPS) -> list[Any]:
    """What steps give, and what is changed then."""
    torch.manual_seed(0)
    step, model = row.make()
    call = wrap(step)
    found = []
    for number in range(steps):
        torch.manual_seed(number)
        found.append(call(*data(number)))
    return [found, model.state_dict()]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each warning is told once in a process, and in one that has used torch.compile the steps of these optimizers are disabled."""
    tracework.reset()
    for cls in (optim.LBFGS, optim.SparseAdam):
        if inspect.getmodule(cls.step.__code__).__name__ == "torch._dynamo.eval_frame":
            monkeypatch.setattr(cls, "step", cls.step.__wrapped__)


@pytest.mark.parametrize("name", ROWS)
def test_values_are_eagers_in_few_graphs(name):
    row, graphs = ROWS[name], []

    def count(stage, product):
        if stage == "captured":
            graphs[-1] += 1

    def counted(step):
        call = tracework.compile(step, backend="aot_eager", observe=count)
        return lambda *args: (graphs.append(0), call(*args))[1]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = trained(row, counted)
    torch.testing.assert_close(found, trained(row, lambda step: step))
    assert graphs[0] <= row.graphs and sum(graphs) <= row.all
    assert row.graphs <= row.torchs or row.uncompiled
    assert any(isinstance(each.message, tracework.UncompiledWarning) for each in told) == row.uncompiled


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.graphs > 1])
def test_explain_says_why_a_step_is_several_graphs(name):
    row, found = ROWS[name], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained(row, lambda step: lambda *args: found.append(tracework.explain(step, backend="aot_eager")(*args)), steps=1)
    assert {stop.as_dict()["reason_id"] for stop in found[0].capture.breaks} == row.breaks
