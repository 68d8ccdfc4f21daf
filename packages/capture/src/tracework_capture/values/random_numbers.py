"""random.random(), np.random.rand() and their like: numbers drawn when the compiled code runs, before its graph, in the program's order.

A draw is an input of the graph. What needs the number while tracing breaks the graph, and the draw is then made by plain Python.
"""

from __future__ import annotations

import functools
import random
import sys

from ..sources import Const
from .constant import NotPlain, plain
from .floats import LateFloat


class DrawnValue(LateFloat):
    """A float that was drawn, or computed from one."""

    def specialise(self, frame):
        return frame.break_graph("random_state", "the value of a random number is needed while tracing")


def draw(frame, function, args, kwargs, most):
    """function(*args), to be called for each run; more than `most` arguments ask for something else than one number."""
    try:
        given = [plain(a) for a in args]
    except NotPlain:
        return frame.break_graph("random_state", f"{function.__name__} of values that are not known")
    if kwargs or len(given) > most or not all(type(a) in (int, float) for a in given):
        return frame.break_graph("random_state", f"{function.__name__} with these arguments")
    node = frame.graph.drawn_input(Const(functools.partial(function, *given), function.__name__))
    frame.mutations.changes += 1
    return DrawnValue(node)


def draw_row(function, most):
    return lambda frame, args, kwargs: draw(frame, function, args, kwargs, most)


PYTHON = {"random": 0, "uniform": 2, "gauss": 2, "normalvariate": 2, "expovariate": 1, "betavariate": 2, "gammavariate": 2}
NUMPY = {"rand": 0, "randn": 0, "random": 0, "random_sample": 0, "uniform": 2, "normal": 2, "exponential": 1, "beta": 2}


def rows():
    """Bound method -> row, for functions that give a float when they get at most so many numbers."""
    found = {getattr(random, name): draw_row(getattr(random, name), most) for name, most in PYTHON.items()}
    numpy = sys.modules.get("numpy")  # torch loads it where it is installed
    if numpy is not None:
        found |= {getattr(numpy.random, n): draw_row(getattr(numpy.random, n), most) for n, most in NUMPY.items()}
    return found


RANDOM_ROWS = rows()
