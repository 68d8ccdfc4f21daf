"""Runs a program plainly and captured and compares everything that can be seen of it: results, exceptions, arguments, globals, output."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import functools
import gc
import io
import itertools
import linecache
import logging
import math
import re
import sys
import traceback
import types
import warnings

import sympy  # noqa: F401  torch loads it at first use, which adds to the filters of warnings
import torch
import tracework_capture
from calls import CALLS, FIRST
from torch.utils.hooks import RemovableHandle
from tracework_capture import _C

__all__ = ["Disagreement", "EvaluatorLimit", "check"]

REFUSED = "raised", "one of the variables needed for gradient computation has been modified by an inplace operation"[:60]
FREED = "raised", "Trying to backward through the graph a second time (or directly access saved tensors"[:60]
VALUES = (tuple, torch.Size, range, fractions.Fraction, decimal.Decimal, datetime.date, datetime.timedelta)
_numbers = itertools.count()


class Disagreement(AssertionError):
    """Captured and plain runs differ."""


class EvaluatorLimit(AssertionError):
    """Captured and plain runs differ as the plain one differs from itself once a frame evaluator is installed that does nothing.

    CPython makes no call of its own then (PEP 523): it holds the arguments of a call until that has ended.
    """


class _Failures(logging.Handler):
    """Collects the reports of capture's own failures."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.seen.append(error)


def eager(gm, example_inputs):
    return gm.forward


def check(source, backend=eager, compiled=False, **options):
    """Raises Disagreement, or EvaluatorLimit where that is all that differs; returns the number of graphs captured.

    Graphs that are compiled may keep an input for the backward where eager keeps what it computes from it, so that a write to the input
    makes backward refuse; what they keep decides, too, whether backward runs a second time without `retain_graph`, which torch promises
    of no graph; and their gradients have the strides of their own kernels.
    """
    graphs = []

    def counting(gm, example_inputs):
        graphs.append(gm)
        return backend(gm, example_inputs)

    plain = load(source)
    captured = load(source)
    main = tracework_capture.optimize(counting, **options)(captured["main"])
    failures = _Failures()
    log = logging.getLogger("tracework.capture")
    log.addHandler(failures)
    propagate, log.propagate = log.propagate, False
    gc.disable()  # what only the collector ends, ends at the same time in both: later
    calls = [CALLS[kind] for kind in plain.get("CALLS", FIRST)]
    evaluated, limit = None, None
    try:
        for number, make in enumerate(calls):
            expected = observe(plain, plain["main"], make(plain), not compiled)
            actual = observe(captured, main, make(captured), not compiled)
            if failures.seen:
                raise Disagreement(f"call {number}: capture failed with {failures.seen[0]!r}") from failures.seen[0]
            differs = disagreement(expected, actual, number, compiled)
            if differs is not None:
                evaluated = evaluated or _evaluated(source, calls, not compiled)
                found = disagreement(next(seen for at, seen in evaluated if at == number), actual, number, compiled)
                if found is not None:
                    raise found
                limit = limit or differs
            state = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
            if state != (True, False):
                raise Disagreement(f"call {number}: modes left as {state}")
            if sys.exc_info()[1] is not None:
                raise Disagreement(f"call {number}: {sys.exc_info()[1]!r} is still being handled")
    finally:
        gc.enable()
        log.removeHandler(failures)
        log.propagate = propagate
        torch.set_grad_enabled(True)
        tracework_capture.reset()
    if limit is not None:
        raise EvaluatorLimit(str(limit))
    return len(graphs)


def _evaluated(source, calls, exact):
    """(number of a call, what it gives and leaves) where a frame evaluator is installed that does nothing."""
    namespace = load(source)

    def main(*args):
        before = _C.set_callback(lambda *frame: None)
        try:
            return namespace["main"](*args)
        finally:
            _C.set_callback(before)

    for number, make in enumerate(calls):
        yield number, observe(namespace, main, make(namespace), exact)


def load(source):
    """A fresh namespace of the module."""
    filename = f"<program {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = sys.modules["program"] = types.ModuleType("program")  # dataclass looks its module up
    vars(module).update(tracework_capture=tracework_capture, __file__=filename, __module=module, __handles=0)
    exec(compile(source, filename, "exec"), vars(module))
    return vars(module)


def observe(namespace, function, args, exact):
    """What a call gives and leaves; `exact`: also where tensors lie in their memory, and how often they were written to."""
    out = io.StringIO()
    torch.manual_seed(0)
    sys.modules["program"], RemovableHandle.next_id = namespace["__module"], namespace["__handles"]
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = ["value", used(function(*args))]
        except Exception as error:
            outcome = ["raised", error, line(error, namespace)]
    namespace["__handles"] = RemovableHandle.next_id
    if outcome[0] == "raised":
        end_frames(outcome[1], set())
    view = _View(exact)
    seen = {"outcome": view(outcome), "arguments": view(args)}
    for name, value in sorted(namespace.items()):
        if name.startswith("__") or isinstance(value, (types.ModuleType, types.FunctionType)):
            continue
        if isinstance(value, type):
            seen[name] = [(k, view(v)) for k, v in vars(value).items() if not k.startswith("__")]
        else:
            seen[name] = view(value)
    return seen | {"output": out.getvalue(), "gradients": gradients(view.keep)}


def used(results):
    """The results, with what iterators still give and what functions without parameters return."""
    if not isinstance(results, tuple):
        return results
    return results, [tried(lambda r=r: consumed(r)) for r in results if not isinstance(r, torch.Tensor)]


def consumed(result):
    if isinstance(result, types.FunctionType) and result.__code__.co_argcount == 0:
        return result()
    if isinstance(result, types.FunctionType) and result.__code__.co_varnames[:2] == ("p", "q"):
        return result(torch.ones(2, 3), 1)
    if hasattr(type(result), "__next__"):
        return list(itertools.islice(result, 12))
    return None


def tried(function):
    """What it returns or raises."""
    try:
        return function()
    except Exception as error:
        end_frames(error, set())
        return error


def line(error, namespace):
    """Where in the program it was raised, as a traceback's last line of the program says.

    For an unbound local that is the function alone: CPython's warm code joins a store with the load after it, and gives the store's line.
    """
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == namespace["__file__"]]
    unbound = isinstance(error, NameError) and str(error).startswith("cannot access")
    return (lines[-1].name, None if unbound else lines[-1].lineno) if lines else None


def gradients(objects):
    """What backward gives to every leaf, from a weighted sum of all tensors seen; the first words of the error where that raises."""
    tensors = [t for t in objects if isinstance(t, torch.Tensor) and t.requires_grad]
    try:
        leaves = [t for t in tensors if t.is_leaf]
        results = [t for t in tensors if t.grad_fn is not None and t.is_floating_point()]
        if not leaves or not results:
            return []
        total = sum((t.double().nan_to_num(0, 0, 0) * (number + 1)).sum() for number, t in enumerate(results))
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except RuntimeError as error:
        return "raised", str(error)[:60]
    return [None if g is None else _View(exact=False)(g) for g in found]


def without_strides(gradients):
    return [g if g is None else (*g[:3], *g[4:]) for g in gradients] if isinstance(gradients, list) else gradients


def end_frames(error, seen):
    """Drop the frames that an exception holds: generators in them end now, not at some later collection."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None
    end_frames(error.__cause__, seen)
    end_frames(error.__context__, seen)


class _View:
    """A comparable picture of a value; objects that are met again appear as their number."""

    def __init__(self, exact):
        self.exact = exact
        self.met = {}
        self.keep = []
        self.memory = {}

    def __call__(self, value):
        kind = type(value)
        if kind is str and not self.exact:  # a compiled graph is one node of autograd, with a name of its own
            value = re.sub(r"grad_fn=<\w+>", "grad_fn", value)
        if value is None or kind in (int, bool, str, bytes, range, complex, torch.dtype):
            return kind.__name__, value
        if kind is float:
            return "float", "nan" if math.isnan(value) else value
        if isinstance(value, type):
            return "type", value.__name__
        if kind not in VALUES:  # equal constants may be one object
            if id(value) in self.met:
                return "again", self.met[id(value)]
            self.met[id(value)] = len(self.met)
            self.keep.append(value)
        return self.picture(kind, value)

    def picture(self, kind, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(kind, value)
        if isinstance(value, BaseException):
            held = [getattr(value, "__notes__", None), value.__suppress_context__]
            return (
                "error",
                kind.__name__,
                [self.text(a) for a in value.args],
                self(vars(value)),
                self(value.__cause__),
                self(value.__context__),
                held,
            )
        if isinstance(value, (list, tuple)) or kind.__name__ == "deque":
            return kind.__name__, [self(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return kind.__name__, [self(item) for item in sorted(value, key=self.place)]
        if isinstance(value, dict):
            return kind.__name__, [(self(k), self(v)) for k, v in value.items()]
        if isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith("<program"):
            names = sorted(zip(value.__code__.co_freevars, value.__closure__ or ()))
            cells = [(name, self.cell(cell)) for name, cell in names]
            return "function", value.__name__, self(value.__defaults__), self(value.__kwdefaults__), self(vars(value)), cells
        if isinstance(
            value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, classmethod, staticmethod)
        ):
            return "function", getattr(value, "__name__", "")
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if kind.__name__.endswith("iterator"):  # one that goes on after a break is over those items that are left
            return "iterator"
        if isinstance(value, functools.partial):
            return "partial", self(value.func), self(value.args), self(value.keywords)
        held = getattr(value, "__dict__", None)
        slots = [name for base in kind.__mro__ for name in vars(base).get("__slots__", ()) if hasattr(value, name)]
        if held is None and not slots:
            return "thing", kind.__name__
        return "object", kind.__name__, self(held), [(name, self(getattr(value, name))) for name in slots if name != "__dict__"]

    def place(self, member):
        """By what members of a set are sorted, so that their numbers do not depend on addresses."""
        return str(_View(exact=False)(member)), self.met.get(id(member), len(self.met))

    def cell(self, cell):
        try:
            return self(cell.cell_contents)
        except ValueError:
            return "empty"

    def tensor(self, kind, value):
        data = torch.nan_to_num(value.detach().double() if not value.is_complex() else torch.view_as_real(value.detach()), 77.0)
        storage = value.untyped_storage()
        memory = self.memory.setdefault(storage.data_ptr(), len(self.memory)) if storage.nbytes() and self.exact else None
        return (
            kind.__name__,
            str(value.dtype),
            tuple(value.shape),
            value.stride(),
            value.requires_grad,
            tuple(data.flatten().tolist()),
            self(sorted(vars(value).items())),
            self(tried(lambda: (value.is_leaf, value.grad if value.is_leaf else None))),  # torch refuses to say it of some views
            (memory, value.storage_offset()) if self.exact else None,
        )

    def text(self, value):
        """Messages of torch errors name operators differently; the first words do."""
        return self(value) if not isinstance(value, str) else value[:40] if not value.startswith("cannot access") else "unbound"


def disagreement(expected, actual, number, compiled):
    """The Disagreement at the first part that differs; None when all agree."""
    if compiled:
        wanted, found = expected["gradients"], actual["gradients"]
        free = found in (REFUSED, FREED) or wanted == FREED
        expected = expected | {"gradients": found if free else without_strides(wanted)}
        actual = actual | {"gradients": found if free else without_strides(found)}
    for part in dict.fromkeys([*expected, *actual]):
        a, b = expected.get(part), actual.get(part)
        if not same(a, b):
            path, a, b = difference(a, b)
            return Disagreement(f"call {number}: {part} differ at {path}\n  plain:    {a}\n  captured: {b}")
    return None


def difference(a, b):
    """Where two pictures that are not the same differ first, and the parts there."""
    path = ""
    while isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        inner = next(i for i, (p, q) in enumerate(zip(a, b)) if not same(p, q))
        if not isinstance(a[inner], (list, tuple)) or not isinstance(b[inner], (list, tuple)):
            break
        path, a, b = f"{path}[{inner}]", a[inner], b[inner]
    if isinstance(a, list) and isinstance(b, list) and len(a) != len(b):
        common = next((i for i, (p, q) in enumerate(zip(a, b)) if not same(p, q)), min(len(a), len(b)))
        path, a, b = f"{path}[{common}:]", a[common:], b[common:]
    return path, a, b


def same(a, b):
    """Equal; floats and data of tensors nearly so."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    return type(a) is type(b) and a == b
