"""Runs a program plainly while it is being written."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings

import torch
from agreement import load
from calls import CALLS

__all__ = ["Trial"]

STEPS = 20_000
"""Lines that a program may run: one that lengthens what it iterates over would not end."""


class Endless(BaseException):
    """A program took too many steps."""


class Trial:
    """A module in which functions are defined and called."""

    def __init__(self, source, number):
        self.namespace = load(source)
        self.number = number

    def runs(self, text):
        """Whether the text compiles and its `main` returns."""
        steps = 0
        filename = self.namespace["__file__"]

        def step(frame, event, argument):
            nonlocal steps
            steps += 1
            if steps > STEPS:
                raise Endless
            return step

        def watch(frame, event, argument):
            return step(frame, event, argument) if frame.f_code.co_filename == filename else None

        before = sys.gettrace()
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            try:
                exec(compile(text, filename, "exec"), self.namespace)
                arguments = CALLS[self.number](self.namespace)
                sys.settrace(watch)
                self.namespace["main"](*arguments)
            except (Exception, Endless):
                return False
            finally:
                sys.settrace(before)
                torch.set_grad_enabled(True)
        return True
