"""Runs a program plainly and captured and compares everything that can be seen of it: results, exceptions, arguments, globals, output."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import logging
import math
import operator
import sys
import traceback
import types
import warnings

import torch
import tracework_capture

__all__ = ["Disagreement", "check"]

REFUSED = "raised", "one of the variables needed for gradient computation has been modified by an inplace operation"[:60]
IN_PLACE = {"setitem", "iand", "ior", *(name for name in vars(operator) if name.startswith("i") and name[1:] in vars(operator))}
_numbers = itertools.count()


class Disagreement(AssertionError):
    """Captured and plain runs differ."""


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
    """Raises Disagreement; returns the number of graphs captured.

    A graph that writes in place and raises when it runs is not run again plainly, since what it wrote cannot be taken back: handlers of
    the frame are not entered. Such a program is compared up to that call.
    Graphs that are compiled may keep an input for the backward where eager keeps what it computes from it, so that a write to the input
    makes backward refuse; and their gradients have the strides of their own kernels.
    """
    graphs, failed = [], []

    def counting(gm, example_inputs):
        graphs.append(gm)
        run = backend(gm, example_inputs)

        def running(*args):
            try:
                return run(*args)
            except Exception as error:
                failed.append(error)
                raise

        return running if writes(gm) else run

    plain = load(source)
    captured = load(source)
    main = tracework_capture.optimize(counting, **options)(captured["main"])
    failures = _Failures()
    log = logging.getLogger("tracework.capture")
    log.addHandler(failures)
    propagate, log.propagate = log.propagate, False
    try:
        for number, make in enumerate(CALLS):
            expected = observe(plain, plain["main"], make(plain))
            actual = observe(captured, main, make(captured))
            if failures.seen:
                raise Disagreement(f"call {number}: capture failed") from failures.seen[0]
            if failed:
                break
            compare(expected, actual, number, compiled)
            state = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
            if state != (True, False):
                raise Disagreement(f"call {number}: modes left as {state}")
    finally:
        log.removeHandler(failures)
        log.propagate = propagate
        torch.set_grad_enabled(True)
        tracework_capture.reset()
    return len(graphs)


def writes(gm):
    """Whether the graph has an operation in place."""
    names = {getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes if node.op.startswith("call")}
    return any(name.endswith("_") and not name.endswith("__") or name in IN_PLACE for name in names)


def load(source):
    """A fresh namespace of the module."""
    filename = f"<program {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = sys.modules["program"] = types.ModuleType("program")  # dataclass looks its module up
    vars(module).update(tracework_capture=tracework_capture, __file__=filename)
    exec(compile(source, filename, "exec"), vars(module))
    return vars(module)


# The elements are small multiples of powers of two: a sum or a mean of them is exact in any order. Where it is zero in one order and a
# rounding error in another, a program that divides by it shows an arbitrary difference.


def _first(ns):
    x = torch.arange(6.0).reshape(2, 3) - 2
    return [x, torch.ones(2, 3), 3, True, [1, 2, 3], {"a": 1, "b": 2}, ns["Base"](2), "abc"]


def _second(ns):
    x = torch.arange(8.0).reshape(4, 2).requires_grad_()
    return [x, torch.full((4, 2), 2.0), 2, False, [0], {"b": 5}, ns["Derived"](1), "word"]


def _third(ns):
    x = torch.arange(-5.0, 6, 2).reshape(2, 3) / 4
    return [x, x, 4, True, [3, 1, 2, 1], {"a": 0}, ns["Base"](3), "abc"]


def _fourth(ns):
    x = (torch.arange(15.0).reshape(5, 3) / 8).requires_grad_()
    return [x * 1, x.detach().flip(0), 5, True, [4, 2], {"a": 2, "c": 1}, ns["Base"](0), "a"]


def _fifth(ns):
    x = torch.arange(12.0).reshape(3, 4).t() / 4 - 1
    return [x, torch.ones(4, 3).requires_grad_(), -1, False, [2, 0, 7], {"a": 3, "b": -1}, ns["Derived"](4), "bca"]


CALLS = (_first, _first, _second, _third, _fourth, _fifth)


def observe(namespace, function, args):
    """What a call gives and leaves."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = ["value", function(*args)]
        except Exception as error:
            outcome = ["raised", error, error.__cause__, error.__context__]
    if outcome[0] == "raised":
        end_frames(outcome[1], set())
    view = _View()
    seen = [view(outcome), view(args), view(namespace["LOG"]), namespace["COUNT"], view(namespace["SHARED"])]
    seen.append(view(namespace.get("net")))
    for name in ("Base", "Derived"):
        seen.append([(k, view(v)) for k, v in vars(namespace[name]).items() if not k.startswith("__")])
    return [*seen, out.getvalue(), gradients(view.keep)]


def gradients(objects):
    """What backward gives to every leaf, from a weighted sum of all tensors seen; the first words of the error where that raises."""
    tensors = [t for t in objects if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in tensors if t.is_leaf]
    results = [t for t in tensors if t.grad_fn is not None and t.is_floating_point()]
    if not leaves or not results:
        return []
    total = sum((t.double().nan_to_num(0, 0, 0) * (number + 1)).sum() for number, t in enumerate(results))
    try:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except RuntimeError as error:
        return "raised", str(error)[:60]
    return [None if g is None else _View()(g) for g in found]


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

    def __init__(self):
        self.met = {}
        self.keep = []

    def __call__(self, value):
        kind = type(value)
        if value is None or kind in (int, bool, str, bytes):
            return kind.__name__, value
        if kind is float:
            return "float", "nan" if math.isnan(value) else value
        if isinstance(value, type):
            return "type", value.__name__
        if kind not in (tuple, torch.Size):  # equal tuples of constants may be one object
            if id(value) in self.met:
                return "again", self.met[id(value)]
            self.met[id(value)] = len(self.met)
            self.keep.append(value)
        return self.picture(kind, value)

    def picture(self, kind, value):
        if isinstance(value, torch.Tensor):
            held = sorted(vars(value).items())
            data = torch.nan_to_num(value.detach().double(), 77.0)
            return (
                "tensor",
                str(value.dtype),
                tuple(value.shape),
                value.stride(),
                value.requires_grad,
                tuple(data.flatten().tolist()),
                self(held),
            )
        if isinstance(value, BaseException):
            # in a continuation the cells of a function are those of a closure: CPython then raises the base class
            name = "NameError" if kind is UnboundLocalError else kind.__name__
            return "error", name, [self.text(a) for a in value.args], self(getattr(value, "code", None))
        if isinstance(value, (list, tuple)) or kind.__name__ == "deque":
            return kind.__name__, [self(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return kind.__name__, sorted((self(item) for item in value), key=str)
        if isinstance(value, dict):
            return kind.__name__, [(self(k), self(v)) for k, v in value.items()]
        if isinstance(
            value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, classmethod, staticmethod)
        ):
            return "function", getattr(value, "__name__", "")
        held = getattr(value, "__dict__", None)
        return ("object", kind.__name__, self(held)) if held is not None else ("thing", kind.__name__)

    def text(self, value):
        """Messages of torch errors name operators differently; the first words do."""
        return self(value) if not isinstance(value, str) else value[:40] if not value.startswith("cannot access") else "unbound"


def compare(expected, actual, number, compiled):
    """Raises Disagreement at the first part that differs."""
    if compiled:
        (*expected, wanted), (*actual, found) = expected, actual
        expected = [*expected, found if found == REFUSED else without_strides(wanted)]
        actual = [*actual, without_strides(found)]
    parts = ("outcome", "arguments", "LOG", "COUNT", "SHARED", "net", "Base", "Derived", "output", "gradients")
    for part, a, b in zip(parts, expected, actual):
        if not same(a, b):
            raise Disagreement(f"call {number}: {part} differ\n  plain:    {a}\n  captured: {b}")


def same(a, b):
    """Equal; floats and data of tensors nearly so."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    return type(a) is type(b) and a == b
