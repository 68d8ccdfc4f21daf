"""Target and Capabilities: what a device and its renderer can do, as frozen values."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What the schedule may ask of a renderer.

    row_scratch: values of one row may stay in kernel-local memory between passes, up to this many bytes of a row.
    atomic_add: dtypes (names) for which several iterations may add to one element.
    scan: running reductions are supported.
    max_reductions_per_kernel: how many reduction passes one kernel may hold.
    """

    row_scratch: int = 0
    scan: bool = True
    max_passes: int = 8
    fuse_outer_reductions: bool = True
    unsupported_ops: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Target:
    """A device type with its renderer's capabilities; `detail` is a compute capability or a CPU feature string."""

    device_type: str
    capabilities: Capabilities
    detail: str = ""
