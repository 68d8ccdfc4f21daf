"""Chooses triton's interpreter before any test module imports triton, as torch's op_db does."""

import triton_interpreter  # noqa: F401
