"""Where a step of the program begins, for those who say so."""

from __future__ import annotations

from tracework_runtime._C import Clock

__all__ = ["STEPS", "mark_step_begin"]


STEPS = Clock()
"""Its `number` says how many steps have begun; 0 where nobody says."""


def mark_step_begin() -> None:
    """Says that a step of the program begins: an inference, or a training step.

    Results of a step that are still held in the next one are copied out of recordings from then on; within a step, several calls of one
    function have memory of their own each. No result is ever overwritten, with or without marks.
    """
    STEPS.number += 1
