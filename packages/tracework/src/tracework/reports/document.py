"""A report as data: `document(recorder)` gives plain dicts and lists, fit for JSON, of the schema SCHEMA in VERSION.

docs/guides/reports.md says what each field means. A field that is there stays what it is within a version; others may be added.
"""

from __future__ import annotations

import linecache
import math
import platform
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import tracework_aotautograd as aotautograd

from .. import _torch
from .._version import __version__
from ..activity import MODULES, STAGES, Span
from ..dump import text_of
from .machine import Machine, machine_of, name_of
from .recorder import Compiled, Recorder

SCHEMA, VERSION = "tracework.report", 1
_PLACE = re.compile(r"(?P<file>.*?):(?P<line>\d+)(?: in (?P<function>\S+))?(?: (?P<operator>.+))?$")


def document(recorder: Recorder, what: str) -> dict[str, Any]:
    """Everything that a recorder knows. what: the function or program that was looked at."""
    files = files_of(recorder.compiled)
    rows = [compiled_row(each, files) for each in recorder.compiled if each.artifact is not None]
    compiled = [{"number": place, **row} for place, row in enumerate(rows)]
    devices = sorted({device for each in compiled for device in each["devices"]}, reverse=True) or ["cpu"]
    machine = _limits(compiled, devices[0]) if recorder.profile else None
    found = {
        "schema": SCHEMA,
        "version": VERSION,
        "what": what,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"tracework": __version__, "torch": _torch.release(), "python": platform.python_version()},
        "machine": {"device": devices[0], "name": name_of(devices[0]), **(_machine(machine) if machine is not None else {})},
        "graphs": [graph_row(number, graph) for number, graph in enumerate(recorder.captured)],
        "breaks": [ROWS["break"](each) for each in recorder.breaks],
        "recompiles": [ROWS["recompile"](each) for each in recorder.recompiles],
        "stored": [ROWS["stored"](each) for each in recorder.stored],
        "plain": [ROWS["plain"](each) for each in recorder.plain],
        "uncompiled": [ROWS["uncompiled"](each) for each in recorder.uncompiled],
        "between": recorder.between,
        "compiled": compiled,
        "compile_time": compile_time(recorder.spans),
        "memory": recorder.memory,
        "budgets": [budgets_row(function, program) for function, program in recorder.trained],
        "guard_costs": None if recorder.guards is None else [_guard_cost(each) for each in recorder.guards],
    }
    return {**found, "summary": _summary(found)}


def _machine(machine: Machine) -> dict[str, Any]:
    return {"bytes_per_second": machine.bandwidth, "flops_per_second": dict(machine.peaks), "how": machine.how}


def _summary(found: Mapping[str, Any]) -> dict[str, Any]:
    compiled = found["compiled"]
    steps = [step for each in compiled for step in each["kernels"]]
    timed = [each for each in compiled if each["us"] is not None]
    return {
        "graphs": len(found["graphs"]),
        "operations": sum(graph["operations"] for graph in found["graphs"]),
        "breaks": len(found["breaks"]),
        "recompiles": len(found["recompiles"]),
        "uncompiled": len(found["uncompiled"]),
        "guards": sum(graph["guards"] for graph in found["graphs"]),
        "kernels": sum(step["kind"] != "library" for step in steps),
        "library": sum(step["kind"] == "library" for step in steps),
        "bytes": _total(step["bytes"] for step in steps),
        "flops": _total(step["flops"] for step in steps),
        "peak_bytes": max((max(each["memory"]["steps"], default=0) for each in compiled), default=0),
        "one_by_one_peak_bytes": max((max(each["memory"]["one_by_one"], default=0) for each in compiled), default=0),
        "compile_seconds": found["compile_time"]["seconds"],
        "us": _total(each["us"] for each in timed) if timed else None,
        "limit_us": _total(each["limit_us"] for each in timed) if timed else None,
    }


def _total(numbers: Iterable[Any]) -> Any:
    return sum(n for n in numbers if n is not None)


# capture


ROWS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "break": lambda stop: stop.as_dict(),
    "recompile": lambda r: {
        "function": r.name,
        "file": r.filename,
        "line": r.line,
        "reasons": list(r.reasons),
        "cures": list(r.cures),
    },
    "plain": lambda p: {
        "function": p.name,
        "file": p.filename,
        "line": p.line,
        "why": p.why,
        "break": p.stop.as_dict() if p.stop else None,
    },
    "stored": lambda s: {"function": s.name, "file": s.filename, "line": s.line, "loaded": s.loaded, "why": s.why},
    "uncompiled": lambda u: {"place": u.place, "why": u.reason},
}
"""What capture tells -> its row."""


def graph_row(number: int, captured: Any) -> dict[str, Any]:
    """A captured graph."""
    table = captured.symbols
    kinds = Counter(guard.kind for guard in captured.guards)
    return {
        "number": number,
        **_origin(captured.origin),
        "operations": sum(node.op in ("call_function", "call_method") for node in captured.graph.graph.nodes),
        "inputs": len(captured.inputs),
        "symbols": [str(s) for s in table.symbols] if table is not None else [],
        "conditions": [str(condition) for condition in table.conditions] if table is not None else [],
        "guards": sum(kinds.values()),
        "guards_by_kind": dict(kinds.most_common()),
        "ended": getattr(captured.stop, "reason_id", "returned"),
        "text": captured.text(),
    }


def budgets_row(function: str, program: Any) -> dict[str, Any]:
    """What a forward keeps for its backward, and would keep with less of `memory_budget`."""
    return {"function": function, "points": aotautograd.trade_off(program).data()}


def _guard_cost(cost: Any) -> dict[str, Any]:
    return {
        "function": cost.function,
        "file": cost.filename,
        "line": cost.line,
        "guards": cost.guards,
        "us": cost.us,
        "dearest": [{"guard": text, "us": us} for text, us in cost.dearest],
    }


def _origin(origin: Any) -> dict[str, Any]:
    """Of a module, whose call is a function of ours, where it was compiled is not known."""
    if origin.filename == MODULES:
        return {"function": origin.function.removesuffix(".__call__"), "file": "", "line": 0}
    return {"function": origin.function, "file": origin.filename, "line": origin.line}


def compile_time(spans: Sequence[Span]) -> dict[str, Any]:
    """Seconds by stage, and by function and stage, the slowest first."""
    functions: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    stages: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        functions[span.what or "others"][span.stage] += span.own
        stages[span.stage] += span.own
    return {
        "seconds": sum(stages.values()),
        "stages": {stage: stages[stage] for stage in STAGES if stage in stages},
        "functions": [
            {"function": name, "seconds": sum(known.values()), "stages": {s: known[s] for s in STAGES if s in known}}
            for name, known in sorted(functions.items(), key=lambda item: -sum(item[1].values()))
        ],
    }


# what was compiled


def files_of(compiled: Sequence[Compiled]) -> dict[str, str]:
    """ "models/mlp.py" -> the whole path, of the files that operators come from: what artifacts keep is the same on all machines."""
    found: dict[str, str] = {}
    for each in compiled:
        for node in each.prims.calls if each.prims is not None else ():
            match = _PLACE.match(str(node.meta.get("origin") or ""))
            if match is not None:
                found.setdefault("/".join(match["file"].rsplit("/", 2)[-2:]), match["file"])
    return found


def compiled_row(own: Compiled, files: Mapping[str, str]) -> dict[str, Any]:
    """A functional graph, what it was compiled to and what is known of each kernel."""
    artifact = own.artifact
    notes = artifact.notes
    hints = _hints(own.symbols)
    buffers = {
        name: {
            "dtype": dtype,
            "sizes": sizes,
            "kind": kind,
            "bytes": known if known is not None else _bytes(sizes, getattr(torch, dtype).itemsize, hints),
        }
        for name, (dtype, sizes, kind, known) in notes.get("buffers", {}).items()
    }
    whole, lines = own.times.microseconds() if own.times is not None and own.times.calls else (None, {})
    kernels = []
    for position, step in enumerate(notes.get("steps", ())):
        written = next((notes["buffers"][name][0] for name in step["writes"] if name in notes["buffers"]), "float32")
        kernels.append(
            {
                "number": position,
                "name": step["name"],
                "kind": step["kind"],
                "ops": step["ops"],
                "lines": [_line(text, files) for text in artifact.places_of(step)],
                "bytes": number(step["bytes"], hints),
                "flops": number(step["flops"], hints),
                "bytes_of_sizes": step["bytes"] if isinstance(step["bytes"], str) else None,
                "flops_of_sizes": step["flops"] if isinstance(step["flops"], str) else None,
                "dtype": written,
                "reads": step["reads"],
                "writes": step["writes"],
                "why_library": step.get("reason") or None,
                "us": sum(lines[n] for n in step["lines"] if n in lines) if whole is not None else None,
                "limit_us": None,
                "bound": None,
            }
        )
    return {
        "function": own.function,
        "role": own.role,
        "devices": sorted(artifact.devices),
        "sizes": hints,
        "kernels": kernels,
        "refused": [
            {"first": first, "second": second, "rule": rule, "reason": reason, "count": count}
            for first, second, rule, reason, count in notes.get("refused", ())
        ],
        "unrecorded": list(own.unrecorded),
        "fallbacks": [{"operator": operator, "why": why} for operator, why in notes.get("fallbacks", ())],
        "memory": {
            "steps": _alive(kernels, buffers, notes.get("outputs", ())),
            "one_by_one": _alive_one_by_one(own.graph, hints),
        },
        "buffers": buffers,
        "inputs": list(artifact.inputs or ()),
        "static_inputs": sorted(artifact.static_inputs),
        "outputs": list(notes.get("outputs", ())),
        "us": whole,
        "calls": own.times.calls if own.times is not None else 0,
        "limit_us": None,
        "code": _code(artifact),
        "texts": {"functional graph": text_of(own.graph), **({"prims": own.prims.text()} if own.prims is not None else {})},
    }


def _code(artifact: Any) -> list[dict[str, Any]]:
    """The host program, then each source with the kernels that are in it."""
    sources: dict[str, list[str]] = {}
    for kernel in artifact.kernels:
        sources.setdefault(kernel.source, []).append(kernel.name)
    host = {"language": "python", "kernels": [], "text": artifact.host_source}
    languages = {kernel.source: kernel.language for kernel in artifact.kernels}
    return [host, *({"language": languages[text], "kernels": names, "text": text} for text, names in sources.items())]


def _line(text: str, files: Mapping[str, str]) -> dict[str, Any]:
    match = _PLACE.match(text)
    if match is None:
        return {"file": "", "line": 0, "function": "", "operator": text, "source": ""}
    file = files.get(match["file"], match["file"])
    return {
        "file": file,
        "line": int(match["line"]),
        "function": match["function"] or "",
        "operator": match["operator"] or "",
        "source": linecache.getline(file, int(match["line"])).strip(),
    }


def _hints(table: Any) -> dict[str, int]:
    """Symbol -> its number in the first call."""
    return {str(s): table.hint(s) for s in table.symbols if table.has_hint(s)} if table is not None else {}


def number(count: int | str | None, hints: Mapping[str, int]) -> int | None:
    """A count for the sizes of the first call; None where one of them is not known."""
    if not isinstance(count, str):
        return count
    try:
        return int(eval(count, {"__builtins__": {}, "max": max, "min": min}, dict(hints)))  # a text of ours, over sizes
    except (NameError, SyntaxError, TypeError, ZeroDivisionError):
        return None


def _limits(compiled: Sequence[dict[str, Any]], device: str) -> Machine:
    """Puts in the least time that each kernel takes on the machine, by its bytes and operations."""
    machine = machine_of(device).at_least(
        (step["dtype"], 1e6 * step["flops"] / step["us"])
        for each in compiled
        for step in each["kernels"]
        if step["us"] and step["flops"] and step["kind"] in ("library", "core")
    )
    for each in compiled:
        for step in each["kernels"]:
            if step["bytes"] is not None:
                dtype = step["dtype"] if step["kind"] in ("library", "core") else "float32"
                seconds, step["bound"] = machine.limit(step["bytes"], step["flops"] or 0, dtype)
                step["limit_us"] = 1e6 * seconds
                if step["us"] is not None and step["us"] < step["limit_us"]:  # quicker than memory is
                    step["limit_us"], step["bound"] = step["us"], "cache"
        each["limit_us"] = _total(step["limit_us"] for step in each["kernels"])
    return machine


def _alive(steps: Sequence[Mapping[str, Any]], buffers: Mapping[str, Any], outputs: Iterable[str]) -> list[int]:
    """Bytes of what the graph makes that are needed while each step runs."""
    kept = frozenset(outputs)
    lives: dict[str, list[int]] = {}
    for n, step in enumerate(steps):
        for name in (*step["reads"], *step["writes"]):
            if name in buffers and buffers[name]["kind"] in ("computed", "extern"):
                lives.setdefault(name, [n, n])[1] = len(steps) - 1 if name in kept else n
    return _sums(len(steps), ((first, last, buffers[name]["bytes"] or 0) for name, (first, last) in lives.items()))


def _alive_one_by_one(graph: torch.fx.GraphModule, hints: Mapping[str, int]) -> list[int]:
    """The same where each operator runs by itself and its result is dropped after its last use, as eager's are."""
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    places = {node: n for n, node in enumerate(nodes)}
    made = {node: _made(node, hints) for node in nodes}
    last = {node: max((places.get(user, len(nodes) - 1) for user in node.users), default=n) for node, n in places.items()}
    for node in reversed(nodes):  # a view keeps what it is a view of
        if not made[node]:
            for source in node.all_input_nodes:
                if source in last:
                    last[source] = max(last[source], last[node])
    return _sums(len(nodes), ((n, last[node], made[node]) for node, n in places.items()))


def _made(node: torch.fx.Node, hints: Mapping[str, int]) -> int:
    """Bytes of memory that a node of a functional graph makes for the sizes of the first call; a view makes none."""
    return sum(_bytes(v.shape, v.itemsize, hints) for v in _torch.tensors_made(node))


def _bytes(sizes: Iterable[Any], itemsize: int, hints: Mapping[str, int]) -> int:
    """Of so many elements; 0 where a size is not known."""
    return itemsize * math.prod(number(n if type(n) is int else str(n), hints) or 0 for n in sizes)


def _sums(steps: int, spans: Iterable[tuple[int, int, int]]) -> list[int]:
    changes = [0] * (steps + 1)
    for first, end, count in spans:
        changes[first] += count
        changes[end + 1] -= count
    found, alive = [], 0
    for change in changes[:-1]:
        alive += change
        found.append(alive)
    return found
