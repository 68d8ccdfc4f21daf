"""PROGRAMS: small programs of the kind people write, each as a function that gives (callable, arguments)."""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

Program = tuple[Callable[..., Any], tuple[Any, ...]]
log = logging.getLogger(__name__)


# --- detection: dicts of lists of boxes per image and level -------------------------------------------------------------


class Anchors(NamedTuple):
    """Boxes of one level."""

    boxes: torch.Tensor
    stride: int


class Pyramid(nn.Module):
    """Features by name, as detectors hand them around."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.lateral = nn.ModuleDict({name: nn.Conv2d(3, channels, 3, 2**level, 1) for level, name in enumerate("pqr")})

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """{name: features}"""
        return {name: F.relu(conv(image)) for name, conv in self.lateral.items()}


class Detector(nn.Module):
    """A list of images in, a list of dicts out; losses in a dict when there are targets."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Pyramid()
        self.scores, self.deltas = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 8, 1)
        self.min_size = 0.5

    def anchors(self, features: torch.Tensor, stride: int) -> Anchors:
        """One box for each place."""
        height, width = features.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(height) * stride, torch.arange(width) * stride, indexing="ij")
        corner = torch.stack([xs, ys], -1).reshape(-1, 2).float()
        return Anchors(torch.cat([corner, corner + 4 * stride], -1), stride)

    def forward(self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]] | None = None) -> Any:
        """Losses, or boxes and scores of each image."""
        outputs: dict[str, list[Any]] = defaultdict(list)
        for image in images:
            for level, (name, features) in enumerate(self.body(image[None]).items()):
                anchors = self.anchors(features, 2**level)
                scores = self.scores(features).permute(0, 2, 3, 1).reshape(-1, 2)
                deltas = self.deltas(features).permute(0, 2, 3, 1).reshape(-1, 2, 4)[:, 0]
                outputs[name].append({"boxes": anchors.boxes + deltas * anchors.stride, "scores": scores.softmax(-1)[:, 1]})
        if targets is not None:
            return self.losses(outputs, targets)
        per_image = zip(*outputs.values(), strict=True)
        return [self.best(list(levels)) for levels in per_image]

    def best(self, levels: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """The ten boxes of an image with the largest scores."""
        merged = {key: torch.cat([level[key] for level in levels]) for key in levels[0]}
        scores, index = merged["scores"].topk(10)
        return {**merged, "scores": scores, "boxes": merged["boxes"][index]}

    def losses(self, outputs: dict[str, list[Any]], targets: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """By name and in total."""
        losses: dict[str, torch.Tensor] = {}
        for name, per_image in outputs.items():
            terms = [
                (found["boxes"].mean(0) - wanted["boxes"].mean(0)).abs().sum()
                for found, wanted in zip(per_image, targets, strict=True)
            ]
            losses[f"loss_{name}"] = torch.stack(terms).mean()
        losses["total"] = sum(losses.values())
        return losses


def detector() -> Program:
    """Boxes of two images of different sizes."""
    return Detector().eval(), ([torch.randn(3, 16, 16), torch.randn(3, 16, 24)],)


def detector_losses() -> Program:
    """Its losses."""
    targets = [{"boxes": torch.rand(n, 4)} for n in (2, 3)]
    return Detector(), ([torch.randn(3, 16, 16), torch.randn(3, 16, 24)], targets)


def filtered_boxes() -> Program:
    """Boxes over a threshold: how many is known only at run time."""

    def keep(boxes: torch.Tensor, scores: torch.Tensor) -> list[torch.Tensor]:
        boxes, kept = boxes.clamp(0, 1) * 8, []
        for threshold in (0.1, 0.5):
            chosen = boxes[scores > threshold]
            if len(chosen) > 3:
                kept.append(chosen.mean(0))
        return kept

    return keep, (torch.rand(32, 4), torch.rand(32))


# --- scientific code ----------------------------------------------------------------------------------------------------


@dataclass
class State:
    """Positions, velocities and what was recorded."""

    position: torch.Tensor
    velocity: torch.Tensor
    energies: list[torch.Tensor] = field(default_factory=list)

    @property
    def kinetic(self) -> torch.Tensor:
        """Energy of movement."""
        return 0.5 * self.velocity.square().sum()


def particles() -> Program:
    """Leapfrog steps of particles, with a record kept in an object."""

    def forces(position: torch.Tensor) -> torch.Tensor:
        apart = position[:, None] - position[None]
        squared = apart.square().sum(-1) + torch.eye(len(position))
        return -(apart / squared[..., None] ** 1.5).sum(1)

    def simulate(position: torch.Tensor, velocity: torch.Tensor, steps: int = 5, dt: float = 0.01) -> State:
        state = State(position.clone(), velocity.clone())
        for step in range(steps):
            state.velocity = state.velocity + dt * forces(state.position)
            state.position += dt * state.velocity
            if step % 2 == 0:
                state.energies.append(state.kinetic)
        return state

    return simulate, (torch.randn(6, 3), torch.randn(6, 3))


def runge_kutta() -> Program:
    """An integrator that takes the right-hand side and a table of coefficients."""
    table = {"a": [[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]], "b": [1 / 6, 1 / 3, 1 / 3, 1 / 6]}

    def step(rhs: Callable[[torch.Tensor], torch.Tensor], y: torch.Tensor, h: float) -> torch.Tensor:
        slopes: list[torch.Tensor] = []
        for row in table["a"]:
            slopes.append(rhs(y + h * sum((c * k for c, k in zip(row, slopes, strict=False)), torch.zeros_like(y))))
        return y + h * sum(b * k for b, k in zip(table["b"], slopes, strict=True))

    def solve(y: torch.Tensor) -> torch.Tensor:
        path = [y]
        while len(path) < 6:
            path.append(step(lambda v: torch.stack([v[1], -v[0].sin()]), path[-1], h=0.1))
        return torch.stack(path)

    return solve, (torch.tensor([1.0, 0.0]),)


def until_converged() -> Program:
    """A fixed point; how many rounds it takes depends on the data."""

    def solve(matrix: torch.Tensor, vector: torch.Tensor) -> tuple[torch.Tensor, int]:
        x, rounds = torch.zeros_like(vector), 0
        for rounds in range(100):  # noqa: B007
            new = (vector - (matrix - torch.diag(matrix.diag())) @ x) / matrix.diag()
            if torch.allclose(new, x, atol=1e-4):
                break
            x = new
        return x, rounds

    return solve, (torch.eye(4) * 4 + torch.rand(4, 4), torch.rand(4))


# --- training -----------------------------------------------------------------------------------------------------------


def gan_step() -> Program:
    """One step of two networks with two optimizers."""
    maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    make_step = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.999))
    judge_step = torch.optim.SGD(judge.parameters(), 1e-2, momentum=0.9)

    def step(real: torch.Tensor, noise: torch.Tensor) -> dict[str, torch.Tensor]:
        fake = maker(noise)
        judge_step.zero_grad()
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        judged = F.binary_cross_entropy_with_logits(judge(real), yes) + F.binary_cross_entropy_with_logits(
            judge(fake.detach()), no
        )
        judged.backward()
        judge_step.step()
        make_step.zero_grad()
        made = F.binary_cross_entropy_with_logits(judge(fake), yes)
        made.backward()
        make_step.step()
        return {"judge": judged.detach(), "maker": made.detach()}

    return step, (torch.randn(6, 8), torch.randn(6, 4))


def lbfgs_step() -> Program:
    """A quasi-Newton step: the optimizer calls a closure as often as its data-dependent search asks for."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, (torch.randn(6, 4), torch.randn(6, 1))


def autocast_step() -> Program:
    """A step in mixed precision, with a scaled loss and clipped gradients."""
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, (torch.randn(6, 4), torch.randint(0, 3, (6,)))


def averaged_weights() -> Program:
    """A step, a learning rate by schedule, an exponential and an equal average of the weights."""
    from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    smooth, equal = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)), AveragedModel(model)

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            smooth.update_parameters(model)
            equal.update_parameters(model)
            schedule.step()
        return smooth(x).detach(), equal(x).detach()

    return step, (torch.randn(6, 4),)


class Pole:
    """An environment in plain Python."""

    def __init__(self) -> None:
        self.angle, self.steps = 0.1, 0

    def step(self, push: int) -> tuple[list[float], float, bool]:
        """(observation, reward, ended)"""
        self.angle, self.steps = self.angle * 1.1 + (0.05 if push else -0.05), self.steps + 1
        return [self.angle, float(self.steps)], 1.0 - abs(self.angle), self.steps >= 5


def rollout() -> Program:
    """Reinforcement learning: actions are drawn, handed to the environment as numbers, returns are discounted."""
    policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def play(start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pole, seen, chances, rewards = Pole(), start, [], []
        ended = False
        while not ended:
            chance = policy(seen).log_softmax(-1)
            action = int(chance.argmax())
            observed, reward, ended = pole.step(action)
            seen = torch.tensor(observed)
            chances.append(chance[action])
            rewards.append(reward)
        total, discounted = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            discounted.insert(0, total)
        return -(torch.stack(chances) * torch.tensor(discounted)).sum(), torch.tensor(rewards)

    return play, (torch.zeros(2),)


# --- things that speak, count and catch -----------------------------------------------------------------------------------


class Verbose(nn.Module):
    """Prints, logs, warns, counts its calls and keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.calls, self.history = 0, {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Three layers."""
        self.calls += 1
        print("call", self.calls, "shape", tuple(x.shape))
        for number, layer in enumerate(self.layers):
            x = layer(x).relu()
            log.info("layer %d gives %s", number, x.dtype)
            self.history[f"mean {number}"] = x.mean()
        if self.calls == 1:
            warnings.warn("the first call", stacklevel=2)
        return x


def verbose() -> Program:
    """print, logging, warnings."""
    return Verbose(), (torch.randn(2, 8),)


def checked() -> Program:
    """Arguments looked up with a fallback, errors caught, a finite check that raises."""
    options: Mapping[str, Any] = {"scale": 2.0}

    def run(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        try:
            scale = options["size"]
        except KeyError:
            scale = options.get("scale", 1.0)
        x = x * scale
        if mask is not None and mask.dim() < x.dim():
            mask = mask.view(*mask.shape, *(1,) * (x.dim() - mask.dim()))
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return x if mask is None else x.masked_fill(mask, 0.0)

    return run, (torch.randn(2, 3, 4), torch.tensor([True, False]))


def statistics_in_a_loop() -> Program:
    """A training log: each round's loss becomes a number."""
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def run(x: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        losses = []
        for layer in layers:
            x = torch.tanh(layer(x)) + x
            losses.append(x.square().mean().item())
        return x.softmax(-1), losses

    return run, (torch.randn(4, 8),)


def rearranged() -> Program:
    """Patches and heads by einops."""
    import einops

    def run(image: torch.Tensor) -> torch.Tensor:
        patches = einops.rearrange(image, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
        heads = einops.rearrange(patches, "b n (h d) -> b h n d", h=4)
        weights = einops.einsum(heads, heads, "b h i d, b h j d -> b h i j").softmax(-1)
        mixed = einops.einsum(weights, heads, "b h i j, b h j d -> b h i d")
        pooled = einops.reduce(mixed, "b h n d -> b (h d)", "mean")
        return einops.repeat(pooled, "b c -> b k c", k=2)

    return run, (torch.randn(2, 3, 16, 16),)


def rearranging_layers() -> Program:
    """A mixer of einops' layers."""
    from einops.layers.torch import EinMix, Rearrange, Reduce

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        nn.Linear(48, 16),
        EinMix("b n c -> b m c", weight_shape="n m", bias_shape="m", n=16, m=8),
        nn.GELU(),
        Reduce("b n c -> b c", "mean"),
    )
    return model, (torch.randn(2, 3, 16, 16),)


PROGRAMS: Mapping[str, Callable[[], Program]] = {
    made.__name__: made
    for made in (
        detector,
        detector_losses,
        filtered_boxes,
        particles,
        runge_kutta,
        until_converged,
        gan_step,
        lbfgs_step,
        autocast_step,
        averaged_weights,
        rollout,
        verbose,
        checked,
        statistics_in_a_loop,
        rearranged,
        rearranging_layers,
    )
}
