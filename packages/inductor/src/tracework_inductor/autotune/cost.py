"""What a candidate will cost, by arithmetic: a row for each device, and `predict`.

Rates are those that large kernels were seen to reach, not those of a data sheet.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import torch

from .record import Problem

__all__ = ["DEVICES", "Calibration", "Device", "Shares", "derived", "device", "has_warp_groups", "predict"]


@dataclasses.dataclass(frozen=True)
class Shares:
    """Of a device's bandwidth and of its rate, what a way was seen to reach.

    small: of that rate, what blocks of fewer results than LARGE_BLOCK reach, which load more for each. exposed: of moving, multiplying and
    computing what follows, the share of the shorter times that the longest one does not hide.
    """

    bandwidth: float = 1.0
    rate: float = 1.0
    small: float = 1.0
    exposed: float = 0.0


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What the first guess of a core of ours, and the library, reach on a kind of problem."""

    core: Shares = Shares()
    library: Shares = Shares()


@dataclasses.dataclass(frozen=True)
class Device:
    """What a GPU does in a microsecond.

    bandwidth: bytes read or written. rates: operations of products, by the units of `Problem.unit`.
    launch_us: what a kernel costs beside its work, in a row of kernels. threads: that a multiprocessor holds at once.
    calibrated: kinds of problems whose predictions were compared with measurements on it, as benchmarks/micro/convolutions.py prints them for
    those of product_costs.py: for others, the candidates' own order holds.
    unaligned: bytes of an element -> bytes of which starts or extents of rows are multiples -> femtoseconds more per multiplication of a product.
    """

    name: str
    multiprocessors: int
    bandwidth: float
    rates: Mapping[str, float]
    launch_us: float = 2.0
    threads: int = 2048
    calibrated: Mapping[str, Calibration] = dataclasses.field(default_factory=dict)
    unaligned: Mapping[int, Mapping[int, float]] = dataclasses.field(default_factory=dict)


FEW_CHANNELS, LIMITED_BY_BYTES = "convolution of few channels", "convolution limited by bytes"
PRODUCT_OF_ROWS = "product of rows"
"""Kinds of problems, as product_costs.py tells them apart."""
LARGE_BLOCK = 128 * 256
_HOPPER = {
    # benchmarks/micro/convolutions.py on an H200: six first convolutions 43 to 144 us, the library with what follows 47 to 496; of sixteen of
    # one place, those for which ours is predicted together 0.74 of the library's time.
    FEW_CHANNELS: Calibration(Shares(0.5, 0.25), Shares(0.3, 0.15)),
    LIMITED_BY_BYTES: Calibration(Shares(0.72, 0.6), Shares(0.9, 1.0)),
}
_OF_H200 = {
    **_HOPPER,
    # benchmarks/micro/products.py on an H200: of 24 products, both ways come in the measured order for 20, and the nine that ours is taken for
    # are quicker than the library. The shares were set by these products; fitted without those of one model after the other, 25 of 32 came
    # in order (eight of them smaller ones, which are no products of this kind), and again none was taken that is slower.
    PRODUCT_OF_ROWS: Calibration(Shares(0.9, 1.12, small=0.9, exposed=0.7), Shares(1.0, 1.15, exposed=0.5)),
}
_H100_RATES = {"bfloat16": 660e6, "float16": 660e6, "tf32": 330e6, "int8": 1300e6, "float32": 48e6, "float64": 45e6}
DEVICES: Mapping[str, Device] = {
    # Copies of 4 to 235 MB take 2 us and 4.2 bytes a picosecond; products of 16384 rows 2.9 fs a multiplication. Unaligned, 2 bytes:
    # 16384x768x50257 in 13.3 ms and 16384x768x30522 in 3.26 ms. 8-byte rows, and elements of 4 bytes, were not measured: low guesses.
    "H200": Device(
        "H200",
        132,
        4.2e6,
        {**_H100_RATES, "bfloat16": 690e6, "float16": 690e6, "float32": 50e6},
        calibrated=_OF_H200,
        unaligned={2: {2: 18.0, 4: 5.6, 8: 2.0}, 4: {4: 2.0, 8: 1.0}},
    ),
    # 92 % of 3.35 TB/s, as decoding in one kernel was seen to reach; products of 8192x8192x4096.
    "H100": Device("H100", 132, 3.08e6, _H100_RATES, calibrated=_HOPPER),
    # 85 % of 1.55 and of 2.04 TB/s, 80 % of 312, 156 and 19.5 TFLOP/s.
    "A100 40GB": Device(
        "A100 40GB",
        108,
        1.32e6,
        {"bfloat16": 250e6, "float16": 250e6, "tf32": 125e6, "int8": 500e6, "float32": 15.6e6, "float64": 15.6e6},
    ),
    "A100 80GB": Device(
        "A100 80GB",
        108,
        1.73e6,
        {"bfloat16": 250e6, "float16": 250e6, "tf32": 125e6, "int8": 500e6, "float32": 15.6e6, "float64": 15.6e6},
    ),
}
"""Name -> row; H100 is the SXM form."""
ABSENT = DEVICES["H200"]
"""What kernels are written for where no GPU is present."""

LEAST_BANDWIDTH = 1e5
"""Of a GPU whose driver says nothing of its memory."""
_REACHED = 0.75
"""Of what clocks and widths promise."""
_OPERATIONS: Mapping[int, tuple[int, int, int]] = {
    70: (1024, 128, 64),
    75: (1024, 128, 4),
    80: (2048, 128, 128),
    86: (1024, 256, 4),
    89: (1024, 256, 4),
    90: (4096, 256, 128),
    100: (8192, 256, 128),
    103: (8192, 256, 4),
    120: (1024, 256, 4),
}
"""Compute capability -> operations in one clock of a multiprocessor: of 16-bit products, in float32, in float64; the next lower row holds for
others."""


@functools.cache
def device(index: int = 0) -> Device:
    """The row of a GPU; one `derived` from its properties where there is none, ABSENT where there is no GPU."""
    if not torch.cuda.is_available():
        return ABSENT
    facts = torch.cuda.get_device_properties(index)
    return _named(facts) or derived(facts)


def has_warp_groups(index: int = 0) -> bool:
    """Whether several warps of a GPU compute a product together, of operands in shared memory, as those of an H100; also where there is no GPU."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(index)[0] in (9, 10)


def _named(facts: Any) -> Device | None:
    """The row of DEVICES whose GPU this is, whole: not a part of it, nor a slower form that has its name."""
    name = f"A100 {40 if facts.total_memory < 50e9 else 80}GB" if "A100" in facts.name else facts.name
    found = next((row for row in DEVICES.values() if row.name in name and "PCIe" not in name and "NVL" not in name), None)
    return found if found is not None and facts.multi_processor_count == found.multiprocessors else None


def derived(facts: Any) -> Device:
    """A row from what torch.cuda.get_device_properties says: clocks in kHz, the width of the bus in bits."""
    capability = facts.major * 10 + facts.minor
    known = max((c for c in _OPERATIONS if c <= capability), default=min(_OPERATIONS))
    clocks = facts.clock_rate * 1e-3 * facts.multi_processor_count * _REACHED
    tensor, single, double = (clocks * operations for operations in _OPERATIONS[known])
    return Device(
        f"sm_{capability} x{facts.multi_processor_count}",
        facts.multi_processor_count,
        2 * facts.memory_clock_rate * 1e-3 * facts.memory_bus_width / 8 * _REACHED or LEAST_BANDWIDTH,
        {
            "bfloat16": tensor,
            "float16": tensor,
            "tf32": tensor / 2,
            "int8": 2 * tensor,
            "float32": single,
            "float64": double,
        },
        threads=facts.max_threads_per_multi_processor,
    )


def predict(problem: Problem, config: Mapping[str, Any], on: Device) -> float:
    """Microseconds of a problem on a device: its bytes or its operations, whichever take longer, what of the others is not hidden, and a launch.

    Products run in waves, a block on each multiprocessor, the last of which is as long as the others; memory is read as quickly as the
    device can as long as each multiprocessor has a block. Of the library (no config), both are taken to be ideal where nothing was measured.
    """
    blocks = _blocks(problem, config.get("constants", {})) if config else 0
    known = on.calibrated.get(problem.kind, Calibration())
    shares = known.core if config else known.library
    moving = problem.bytes / (on.bandwidth * shares.bandwidth)
    computing = problem.operations / (on.rates[problem.unit] * shares.rate)
    if blocks:
        computing /= shares.small if _block(config["constants"]) < LARGE_BLOCK else 1.0
        moving /= min(1.0, blocks / on.multiprocessors)
        computing *= math.ceil(blocks / on.multiprocessors) * on.multiprocessors / blocks
    times = moving, computing, problem.scalars / on.rates["float32"]
    return max(times) + shares.exposed * (sum(times) - max(times)) + on.launch_us


def _block(constants: Mapping[str, int]) -> int:
    """Results of a block."""
    return constants.get("YBLOCK", 1) * constants.get("XBLOCK", 1)


def _blocks(problem: Problem, constants: Mapping[str, int]) -> int:
    """How many blocks are launched: all dimensions but "r" lie in blocks, and "r" in PARTS parts."""
    outer = (math.ceil(size / constants.get(f"{name.upper()}BLOCK", 1)) for name, size in problem.sizes if name != "r")
    return math.prod(outer) * constants.get("PARTS", 1)
