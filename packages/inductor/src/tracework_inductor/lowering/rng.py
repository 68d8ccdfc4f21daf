"""Random numbers come from eager's own kernels, in eager's order, so that they are eager's numbers."""

from .registry import LOWERINGS  # noqa: F401  (the family has no rows: every op calls its eager rule, in order)
