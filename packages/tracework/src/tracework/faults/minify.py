"""minify: the smallest program that still fails in the same way, as a case and as a script of a few lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ..cases import Case, CaseError
from .find import searched, shorten
from .program import Program, is_part
from .search import at_lines, attempt, ends, first, narrowed, place_of, prefix
from .trial import Failure, Trial

MOST_TRIES = 200
"""Programs that are tried at most."""


@dataclasses.dataclass(frozen=True)
class Minified:
    """case: of the small program. failure: how it fails, as the large one does. before: how many calls that had. tries: programs that were
    tried. seeded: whether it fails with inputs that the script makes, too."""

    case: Case
    failure: Failure
    before: int
    after: int
    tries: int
    seeded: bool

    def script(self, path: str = "minified.case") -> str:
        """A Python program that shows the failure, with its inputs from `path` where random ones do not show it."""
        program = Program.of(self.case.graph(), self.case.level, self.case.inputs)
        lines = ["import torch", "import tracework", "", *_modes(self.case.modes)]
        names = [n.name for n in program.placeholders]
        static = [getattr(n.meta.get("binding"), "is_static", False) for n in program.placeholders]
        if self.seeded:
            made = (_maker(x, kept) for x, kept in zip(program.inputs, static, strict=True))
            lines += ["torch.manual_seed(0)", *(f"{name} = {text}" for name, text in zip(names, made, strict=True))]
            given = f"[{', '.join(names)}]"
        else:
            given = f"tracework.Case.load({path!r}).inputs"
        options = f", options={dict(self.case.options)!r}" if self.case.options else ""
        if any(static) and not self.seeded:  # the case knows which they are
            lines += [*(f"# {line}" for line in _body(program)), "", f"print(tracework.diff(tracework.Case.load({path!r})))"]
        elif self.case.level == "captured":
            called = ", ".join(names) if self.seeded else f"*{given}"
            lines += [
                "",
                f"def f({', '.join(names)}):",
                *_body(program),
                "",
                f"print(tracework.diff(f{options})({called}))",
            ]
        else:
            text = self.case.program.strip()
            lines += [
                "",
                f'program = """{text}"""',
                f"print(tracework.diff(tracework.Case({self.case.level!r}, program, tuple({given}){options})))",
            ]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        failed = f"{self.failure.kind} at stage {self.failure.stage}: {shorten(self.failure.what)}"
        return f"{self.before} operators to {self.after} in {self.tries} tries; it still fails: {failed}"


def minify(case: Case) -> Minified:
    """The smallest program found. Raises CaseError where the case does not fail.

    First the calls at the lines at fault, which are searched for in the graph of the stage that fails; then half of the calls again and
    again, the shortest prefix of what is left, without the first ones, with fewer results, and without each call that is left: what is taken
    out becomes an input with the value that it had.
    """
    found = searched(case, _minified, lambda minified: minified is not None)
    if found is None:
        raise CaseError("the case does not fail, so there is nothing to make smaller: nothing is wrong, or other versions were")
    return found


def _minified(case: Case) -> Minified | None:
    whole = Program.of(case.graph(), case.level, case.inputs)
    failure = Trial(case.chosen, slowness=True)(whole)
    if failure is None:
        return None
    search = _Search(case, failure)
    small = search.run(whole)
    left = search.trial(small) or failure
    written = small.case(case).replace(stage=left.stage, error=f"{left.error or left.kind}: {shorten(left.what)}")
    seeded = failure.same(attempt(search.trial, dataclasses.replace(small, inputs=tuple(_seeded(small.inputs)))))
    return Minified(written, left, len(whole.calls), len(small.calls), search.trial.tries, seeded)


class _Search:
    def __init__(self, case: Case, failure: Failure) -> None:
        self.failure = failure
        self.trial = Trial.for_failure(case.chosen, failure)

    def fails(self, program: Program | None) -> bool:
        if program is None or self.trial.tries >= MOST_TRIES:
            return False
        return self.failure.same(attempt(self.trial, program))

    def run(self, program: Program) -> Program:
        """Smaller and smaller until nothing more can be taken away."""
        program = narrowed(self._at_fault(program), self.fails)
        if len(program.calls) > 1:
            program = self._without_first(self._shortest(program))
        return self._without_each(self._fewer_results(program)) if len(program.calls) > 1 else program

    def _at_fault(self, program: Program) -> Program:
        """The calls at the lines that fail in the graph of a later stage, which is compiled quicker than the whole; the program itself where
        these alone do not fail."""
        if self.failure.program.level == program.level:
            return program
        small = narrowed(self.failure.program, self.fails)
        places = {place_of(n) for n in small.calls}
        part = at_lines(program, places, program.values(copies=True))
        return part if part is not None and self.fails(part) else program

    def _shortest(self, program: Program) -> Program:
        values = program.values(copies=True)
        count = first(ends(program), lambda n: self.fails(prefix(program, n, values)))
        return prefix(program, count, values) or program

    def _without_first(self, program: Program) -> Program:
        values, calls, outputs = program.values(copies=True), program.calls, _tensors(program)

        def rest(count: int) -> Program | None:
            return program.cut(calls[len(calls) - count :], [n for n in outputs if n in calls[len(calls) - count :]], values)

        counts = [n for n in range(1, len(calls) + 1) if not is_part(calls[len(calls) - n])]
        return rest(first(counts, lambda n: self.fails(rest(n)), few=True)) or program

    def _fewer_results(self, program: Program) -> Program:
        values = program.values(copies=True)
        outputs = _tensors(program)
        for output in outputs if len(outputs) > 1 else []:
            part = program.cut(program.calls, [output], values)
            if self.fails(part):
                assert part is not None
                return part
        return program

    def _without_each(self, program: Program) -> Program:
        done: set[str] = set()
        while True:
            values = program.values(copies=True)
            node = next((n for n in program.calls if n.name not in done and not is_part(n)), None)
            if node is None:
                return program
            done.add(node.name)
            gone = {node, *(user for user in node.users if is_part(user))}
            kept = [n for n in program.calls if n not in gone]
            outputs = [n for n in _tensors(program) if n not in gone]
            part = program.cut(kept, outputs, values) if kept and outputs else None
            if part is not None and self.fails(part):
                program = part


def _modes(modes: Mapping[str, Any]) -> list[str]:
    """The lines that turn on what was on."""
    lines = [] if modes["grad"] else ["torch.set_grad_enabled(False)"]
    for device, dtype in modes["autocast"].items():
        lines += [f"torch.set_autocast_dtype({device!r}, torch.{dtype})", f"torch.set_autocast_enabled({device!r}, True)"]
    return lines


def _tensors(program: Program) -> list[fx.Node]:
    """The nodes that are results."""
    return [n for n in dict.fromkeys(program.outputs) if isinstance(n, fx.Node) and n.op != "placeholder"]


def _seeded(inputs: tuple[Any, ...]) -> list[Any]:
    """What the script's lines make."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [eval(_maker(x), {"torch": torch}) if isinstance(x, torch.Tensor) else x for x in inputs]


def _maker(value: Any, is_static: bool = False) -> str:
    """Python that makes such a value; a parameter of what is there before the call."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    device = f", device={str(value.device)!r}" if value.device.type != "cpu" else ""
    sizes = tuple(value.shape)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        kind = f", dtype={value.dtype}" if value.dtype != torch.float32 else ""
        made = f"torch.randn({sizes}{kind}{device})"
    elif value.dtype is torch.bool:
        made = f"torch.rand({sizes}{device}) < 0.5"
    else:
        low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 0)
        made = f"torch.randint({low}, {high + 1}, {sizes}, dtype={value.dtype}{device})"
    if not value.is_contiguous():
        order = sorted(range(value.dim()), key=value.stride, reverse=True)
        back = tuple(order.index(d) for d in range(value.dim()))
        made = f"({made}).permute({back}).contiguous().permute({tuple(order)})" if value.dim() > 1 else made
    if is_static and (value.dtype.is_floating_point or value.dtype.is_complex):
        return f"torch.nn.Parameter({made}, {value.requires_grad})"
    return f"{made}.requires_grad_()" if value.requires_grad else made


def _body(program: Program) -> list[str]:
    """The lines of a captured graph as Python, one for each call."""
    names = {n: n.name for n in program.graph.nodes}
    lines = []
    for node in program.calls:
        args = [_text(a, names) for a in node.args] + [f"{k}={_text(v, names)}" for k, v in node.kwargs.items()]
        if node.op == "call_method":
            call = f"{args[0]}.{node.target}({', '.join(args[1:])})"
        elif is_part(node):
            call = f"{args[0]}[{args[1]}]"
        else:
            call = f"{_function(node)}({', '.join(args)})"
        place = place_of(node)
        lines.append(f"    {node.name} = {call}{f'  # {place}' if place else ''}")
    return [*lines, f"    return {', '.join(_text(v, names) for v in program.outputs)}"]


def _function(node: fx.Node) -> str:
    """What is called, by a name that begins with torch."""
    from tracework_capture.graph.text import name_of

    name = name_of(node)
    module, _, function = name.rpartition(".")
    return (
        f"torch.{function}"
        if module == "_operator" and hasattr(torch, function)
        else name.replace("_operator.", "__import__('operator').")
    )


def _text(value: Any, names: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return names[value]
    if isinstance(value, tuple):
        return f"({''.join(_text(v, names) + ', ' for v in value).rstrip()})"
    if isinstance(value, list):
        return f"[{', '.join(_text(v, names) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_text(v, names)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(_text(v, names) for v in (value.start, value.stop, value.step))})"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return f"float('{value}')"
    return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else "..." if value is ... else repr(value)


__all__ = ["Minified", "minify"]
