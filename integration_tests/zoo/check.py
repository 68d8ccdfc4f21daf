"""One record in one mode: compiled against eager, and what was counted on the way."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import tracework
from tracework_capture.uncompiled import collected

from .build import build
from .inputs import INPUTS, other_sizes
from .record import Record

OUTPUT_BOUND, GRADIENT_BOUND = 1e-5, 1e-4
ENVELOPE = 3.0
"""Where eager's own rounding error is larger than the bound, compiled code may have this many times eager's error."""


@dataclass
class Outcome:
    """What came of one record in one mode."""

    name: str
    mode: str
    status: str = "equal"
    """equal, within the float64 envelope, wrong, raised, not built"""
    error: float = 0.0
    gradient_error: float = 0.0
    graphs: int = 0
    kernels: int = 0
    breaks: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    uncompiled: list[str] = field(default_factory=list)
    """what an UncompiledWarning told of"""
    other_sizes: list[int] = field(default_factory=list)
    """graphs that a call with another batch and length brought, and then one with yet others"""
    seconds: float = 0.0
    detail: str = ""

    def row(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """The floating-point tensors and the others of an output, in order; caches and None are passed over."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            yield from tensors(value)


def relative(got: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest ||got - expected|| / ||expected|| in float64; infinite where shapes, dtypes or non-finite places differ."""
    if len(got) != len(expected):
        return float("inf")
    return max((_one(g.detach(), e.detach()) for g, e in zip(got, expected, strict=True)), default=0.0)


def _one(got: torch.Tensor, expected: torch.Tensor) -> float:
    if got.shape != expected.shape or got.dtype.is_floating_point != expected.dtype.is_floating_point:
        return float("inf")
    got, expected = got.double(), expected.double()
    finite = expected.isfinite()
    if not torch.equal(finite, got.isfinite()):
        return float("inf")
    got, expected = got[finite], expected[finite]
    distance, size = (got - expected).norm().item(), expected.norm().item()
    return distance / size if size > 1e-12 else distance


def loss_of(output: Any) -> torch.Tensor:
    """The model's own loss, else the mean square of its floating-point outputs."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    return torch.stack([t.square().mean() for t in tensors(output) if t.requires_grad]).sum()


class Counts(logging.Handler):
    """Listens to the logs of breaks, of plainly run frames and of eager kernels."""

    LOGGERS = ("tracework.capture", "tracework.capture.breaks", "tracework.fallbacks")

    def __init__(self, outcome: Outcome):
        super().__init__(logging.DEBUG)
        self.outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        """Sorts one line."""
        text = record.getMessage()
        if "graph break in" in text:
            self.outcome.breaks.append(text.partition("graph break in ")[2])
        elif "runs as plain Python" in text and "tensor operation" not in text:
            self.outcome.plain.append(text)
        elif record.name == "tracework.fallbacks":
            self.outcome.fallbacks.append(text)

    def __enter__(self) -> Counts:
        for name in self.LOGGERS:
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        for name in self.LOGGERS:
            logging.getLogger(name).removeHandler(self)


def _observer(outcome: Outcome) -> Callable[[str, Any], None]:
    def observe(stage: str, product: Any) -> None:
        if stage == "captured":
            outcome.graphs += 1
        elif stage == "inductor":
            outcome.kernels += len(product.kernels)

    return observe


def _judge(outcome: Outcome, error: float, bound: float, envelope: Callable[[], tuple[float, float]]) -> None:
    """Sets the status: equal within the bound, else compared with the float64 result; what was wrong once stays so."""
    if error <= bound or outcome.status == "wrong":
        return
    eager, compiled = envelope()
    within = compiled <= max(ENVELOPE * eager, bound)
    outcome.status = "within envelope" if within else "wrong"
    outcome.detail += f" error {error:.1e}; from float64: eager {eager:.1e}, compiled {compiled:.1e}"


def _double(inputs: Any) -> Any:
    """The floating-point tensors of the inputs, in lists and dicts too, in float64."""
    if isinstance(inputs, dict):
        return {key: _double(value) for key, value in inputs.items()}
    if isinstance(inputs, list):
        return [_double(value) for value in inputs]
    return inputs.double() if isinstance(inputs, torch.Tensor) and inputs.is_floating_point() else inputs


def inference(record: Record, outcome: Outcome, backend: str) -> None:
    """eval() under no_grad, called twice, and once with each of the other sizes."""
    model, inputs = build(record).eval(), INPUTS[record.inputs](record)
    with torch.no_grad():
        compiled = tracework.compile(model, backend=backend, observe=_observer(outcome))
        for call in (inputs, inputs, *other_sizes(record, inputs)):
            expected, before = list(tensors(model(**call))), outcome.graphs
            got = list(tensors(compiled(**call)))
            if call is not inputs:
                outcome.other_sizes.append(outcome.graphs - before)
            error = relative(got, expected)
            outcome.error = max(outcome.error, error)

            def envelope(call=call, got=got, expected=expected) -> tuple[float, float]:
                exact = list(tensors(copy.deepcopy(model).double()(**_double(call))))
                return relative(expected, exact), relative(got, exact)

            _judge(outcome, error, OUTPUT_BOUND, envelope)
        outcome.graphs -= sum(outcome.other_sizes)


@dataclass
class Step:
    """What one training step left behind."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]
    names: list[str]


def _step(model: torch.nn.Module, call: Callable[..., Any], inputs: dict[str, Any], seed: int) -> Step:
    torch.manual_seed(seed)
    model.zero_grad()
    output = call(**inputs)
    loss_of(output).backward()
    named = [(n, p.grad.clone()) for n, p in model.named_parameters() if p.grad is not None]
    buffers = [b.clone() for b in model.buffers()]
    return Step([t.detach() for t in tensors(output)], [g for _, g in named], buffers, [n for n, _ in named])


def _flat(step: Step) -> list[torch.Tensor]:
    return [torch.cat([g.flatten().double() for g in step.gradients])] if step.gradients else []


def training(record: Record, outcome: Outcome, backend: str) -> None:
    """train() with dropout as configured, two steps with equal seeds; outputs, gradients and buffers."""
    reference, inputs = build(record).train(), INPUTS[record.inputs](record)
    model, exact = copy.deepcopy(reference), copy.deepcopy(reference).double()
    compiled = tracework.compile(model, backend=backend, observe=_observer(outcome))
    for seed in (1, 2):
        expected, got = _step(reference, reference, inputs, seed), _step(model, compiled, inputs, seed)
        if expected.names != got.names:
            outcome.status = "wrong"
            outcome.detail = f"gradients of {sorted(set(expected.names) ^ set(got.names))[:5]} exist on one side only"
            return
        outcome.error = max(outcome.error, relative(got.outputs, expected.outputs), relative(got.buffers, expected.buffers))
        outcome.gradient_error = max(outcome.gradient_error, relative(_flat(got), _flat(expected)))

    # dropout draws other numbers in float64, so the envelope is an estimate there; it only serves to sort the cases
    def outputs() -> tuple[float, float]:
        truth = _step(exact, exact, _double(inputs), 2)
        return relative(expected.outputs, truth.outputs), relative(got.outputs, truth.outputs)

    def gradients() -> tuple[float, float]:
        truth = _step(exact, exact, _double(inputs), 2)
        return relative(_flat(expected), _flat(truth)), relative(_flat(got), _flat(truth))

    _judge(outcome, outcome.error, OUTPUT_BOUND, outputs)
    _judge(outcome, outcome.gradient_error, GRADIENT_BOUND, gradients)


def generate(record: Record, outcome: Outcome, backend: str) -> None:
    """Greedy generation with a static cache, the forward compiled; tokens must be equal."""
    model, inputs = build(record).eval(), INPUTS[record.inputs](record)
    settings = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static", "disable_compile": True}
    with torch.no_grad():
        expected = model.generate(**inputs, **settings)
        model.forward = tracework.compile(model.forward, backend=backend, observe=_observer(outcome))
        got = model.generate(**inputs, **settings)
    outcome.status = "equal" if torch.equal(expected, got) else "wrong"


MODES: Mapping[str, Callable[[Record, Outcome, str], None]] = {"inference": inference, "training": training, "generate": generate}


def check(name: str, record: Record, mode: str, backend: str = "inductor") -> Outcome:
    """Runs one record in one mode; an exception becomes the outcome's status."""
    outcome = Outcome(name, mode)
    torch.manual_seed(0)
    tracework.reset()
    started = time.perf_counter()
    try:
        with Counts(outcome), collected() as uncompiled:
            MODES[mode](record, outcome, backend)
        outcome.uncompiled = list(map(str, uncompiled))
    except Exception as error:
        outcome.status = "raised"
        outcome.detail = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    outcome.seconds = round(time.perf_counter() - started, 2)
    return outcome
