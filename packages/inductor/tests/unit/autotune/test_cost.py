"""What is predicted: no less than the limits, no more for less work, and near what was measured before."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracework_inductor.autotune import cost
from tracework_inductor.autotune.record import Problem, bucket
from tracework_inductor.product_costs import FEW_CHANNELS, LARGE_CONVOLUTION, LIMITED_BY_BYTES, convolution_kind

H200, H100 = cost.DEVICES["H200"], cost.DEVICES["H100"]


def problem(device=H200, kind="dot", sizes=(), **work):
    return Problem(kind, tuple(sizes), (), (), device.name, **work)


def product(m, n, k, itemsize=2, unit="bfloat16"):
    """Operands and result once."""
    return problem(
        sizes=(("y", m), ("x", n), ("r", k)),
        bytes=itemsize * (m * k + k * n + m * n),
        operations=2 * m * n * k,
        unit=unit,
    )


def computed(columns):
    """A product whose bytes do not count."""
    return dataclasses.replace(product(128, columns, 65536), bytes=0)


MEASURED = [
    # what, device, problem, microseconds; benchmarks/micro/RESULTS.md and the docstrings of lowering/ and passes/ have them
    ("copy of a head 128256x2048", H200, problem(bytes=2 * 128256 * 2048), 126.0),
    ("copy of 8192x2048", H200, problem(bytes=2 * 8192 * 2048), 10.3),
    ("copy of 4096x14336", H200, problem(bytes=2 * 4096 * 14336), 30.3),
    ("copy of 4096x4096 float32", H200, problem(bytes=4 * 4096 * 4096), 18.3),
    ("head of two rows", H200, product(2, 128256, 2048), 123.5),
    ("gate and up of two rows, one matrix", H200, product(2, 8192, 2048), 11.4),
    ("down of 8b, eight rows", H200, product(8, 4096, 14336), 32.6),
    ("o of 8b, eight rows", H200, product(8, 4096, 4096), 11.3),
    ("gpt2 qkv, two rows", H200, product(2, 2304, 768), 4.4),
    ("4096x4096 float32, two rows", H200, product(2, 4096, 4096, 4, "float32"), 19.3),
    ("keys and values of 32768, llama 8b", H200, problem(bytes=2 * 2 * 8 * 128 * 32768), 40.7),
    ("keys and values of 4096, llama 1b, batch 8", H200, problem(bytes=8 * 2 * 2 * 8 * 64 * 4096), 26.8),
    ("aligned 16384x768x50257", H200, product(16384, 50264, 768), 1834.0),
    ("30528x16384x768", H100, product(30528, 768, 16384), 930.0),
    ("8192x8192x512", H100, product(8192, 8192, 512), 117.0),
]


@pytest.mark.parametrize(("what", "device", "asked", "us"), MEASURED, ids=[row[0] for row in MEASURED])
def test_predictions_are_near_what_was_measured(what, device, asked, us):
    assert us / 1.7 < cost.predict(asked, {}, device) < us * 1.4


sizes = st.integers(1, 1 << 22)
amounts = st.integers(0, 1 << 40)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(sizes, sizes, amounts, amounts, st.sampled_from(list(cost.DEVICES.values())))
def test_predictions_grow_with_work_and_are_no_less_than_the_limit(x, r, moved, computed, device):
    config = {"constants": {"XBLOCK": 64, "RBLOCK": 256}}
    asked = problem(device, sizes=(("x", x), ("r", r)), bytes=moved, operations=computed)
    us = cost.predict(asked, config, device)
    assert us >= max(moved / device.bandwidth, computed / device.rates["float32"]) + device.launch_us
    assert us >= cost.predict(asked, {}, device)
    assert cost.predict(dataclasses.replace(asked, bytes=moved + 1000), config, device) >= us
    assert cost.predict(dataclasses.replace(asked, operations=computed + 1000), config, device) >= us
    faster = dataclasses.replace(device, bandwidth=2 * device.bandwidth, rates={"float32": 2 * device.rates["float32"]})
    assert cost.predict(asked, config, faster) <= us


def test_the_last_wave_takes_as_long_as_the_others():
    """133 tiles on 132 multiprocessors take twice the time of 132."""
    tile = {"constants": {"XBLOCK": 128, "YBLOCK": 128}}
    times = [cost.predict(computed(128 * n), tile, H200) - H200.launch_us for n in (132, 133, 264)]
    assert times[0] < times[1] == pytest.approx(times[2], rel=0.01) and times[1] == pytest.approx(2 * times[0], rel=0.01)


def test_few_blocks_do_not_fill_the_memory_and_parts_do():
    asked = problem(sizes=(("x", 64), ("r", 1 << 20)), bytes=1 << 28)
    config = {"XBLOCK": 1}
    one, two, eight = (cost.predict(asked, {"constants": {**config, "PARTS": n}}, H200) for n in (1, 2, 8))
    assert one > 1.9 * two > 1.9 * cost.predict(asked, {}, H200) * 0.99 and two > eight == cost.predict(asked, {}, H200)


def test_what_was_calibrated_takes_its_share():
    """Ours and the library's by themselves, and no other kind of problem."""
    row = cost.Calibration(cost.Shares(0.5, 1.0), cost.Shares(1.0, 0.25))
    on, tile = dataclasses.replace(H200, calibrated={"dot": row}), {"constants": {"XBLOCK": 1 << 20}}
    moving, computing = problem(bytes=1 << 30), problem(operations=1 << 40, unit="bfloat16")
    for asked, config, times in ((moving, tile, 2), (computing, tile, 1), (moving, {}, 1), (computing, {}, 4)):
        plain, found = (cost.predict(asked, config, device) - H200.launch_us for device in (H200, on))
        assert found == pytest.approx(times * plain)
        other = dataclasses.replace(asked, kind="other")
        assert cost.predict(other, config, on) == cost.predict(other, config, H200)


PROPERTIES = {
    "NVIDIA H100 80GB HBM3": (132, 9, 0, 85e9, 1980000, 2619000, 5120, "H100"),
    "NVIDIA H200": (132, 9, 0, 150e9, 1980000, 3201000, 6144, "H200"),
    "NVIDIA A100-SXM4-80GB": (108, 8, 0, 85e9, 1410000, 1593000, 5120, "A100 80GB"),
    "NVIDIA A100-SXM4-40GB": (108, 8, 0, 42e9, 1410000, 1215000, 5120, "A100 40GB"),
    "NVIDIA H100 PCIe": (114, 9, 0, 85e9, 1755000, 1593000, 5120, "sm_90 x114"),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (16, 9, 0, 10e9, 1980000, 2619000, 640, "sm_90 x16"),
    "NVIDIA GeForce RTX 4090": (128, 8, 9, 25e9, 2520000, 10501000, 384, "sm_89 x128"),
    "Tesla P100": (56, 6, 0, 17e9, 1328000, 715000, 4096, "sm_60 x56"),
}


def properties(name):
    count, major, minor, memory, clock, memory_clock, width, _ = PROPERTIES[name]
    return SimpleNamespace(
        name=name,
        multi_processor_count=count,
        major=major,
        minor=minor,
        total_memory=memory,
        clock_rate=clock,
        memory_clock_rate=memory_clock,
        memory_bus_width=width,
        max_threads_per_multi_processor=2048,
    )


@pytest.fixture
def gpu(monkeypatch):
    cost.device.cache_clear()
    monkeypatch.setattr(cost.torch.cuda, "is_available", lambda: True)

    def is_a(name):
        monkeypatch.setattr(cost.torch.cuda, "get_device_properties", lambda index: properties(name))
        return cost.device()

    yield is_a
    cost.device.cache_clear()


@pytest.mark.parametrize("name", PROPERTIES)
def test_each_gpu_has_a_row(name, gpu):
    row = gpu(name)
    assert row.name == PROPERTIES[name][-1]
    assert set(row.rates) == set(H200.rates) and min(row.bandwidth, *row.rates.values()) > 0


@pytest.mark.parametrize("name", list(PROPERTIES)[:4])
def test_what_is_derived_is_near_the_row(name):
    derived, row = cost.derived(properties(name)), cost.DEVICES[PROPERTIES[name][-1]]
    pairs = [(derived.bandwidth, row.bandwidth), *((derived.rates[u], row.rates[u]) for u in ("bfloat16", "tf32", "float32"))]
    assert all(known / 1.5 < found < known * 1.5 for found, known in pairs)


def test_without_a_gpu_there_is_a_row(monkeypatch):
    monkeypatch.setattr(cost.torch.cuda, "is_available", lambda: False)
    cost.device.cache_clear()
    assert cost.device() is cost.ABSENT
    cost.device.cache_clear()


def test_buckets_hold_the_sizes_below_them():
    assert [bucket(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
    assert all(a <= b for a, b in itertools.pairwise(bucket(n) for n in range(300)))


def test_a_gpu_that_says_nothing_of_its_memory_has_a_row():
    facts = properties("NVIDIA GeForce RTX 4090")
    facts.memory_clock_rate = facts.memory_bus_width = 0
    row = cost.derived(facts)
    assert row.bandwidth > 0 and cost.predict(problem(row, sizes=(("y", 64),), bytes=1 << 20), {}, row) > 0
    assert convolution_kind((8, 64, 56, 56), (64, 64, 3, 3), 8 * 64 * 56 * 56, "bfloat16", row) == LARGE_CONVOLUTION


CONVOLUTIONS = {
    "first of a network": ((64, 3, 224, 224), (64, 3, 7, 7), (112, 112), FEW_CHANNELS),
    "latents": ((8, 4, 64, 64), (320, 4, 3, 3), (64, 64), FEW_CHANNELS),
    "one image": ((1, 3, 224, 224), (32, 3, 3, 3), (112, 112), LARGE_CONVOLUTION),
    "grey": ((64, 1, 224, 224), (64, 1, 7, 7), (112, 112), LARGE_CONVOLUTION),
    "large patches": ((64, 3, 224, 224), (1024, 3, 14, 14), (16, 16), LARGE_CONVOLUTION),
    "large windows": ((64, 3, 224, 224), (64, 3, 51, 51), (174, 174), LARGE_CONVOLUTION),
    "short transforms": ((8, 1, 480000), (1026, 1, 1024), (1872,), LARGE_CONVOLUTION),
    "expansion": ((64, 64, 56, 56), (256, 64, 1, 1), (56, 56), LIMITED_BY_BYTES),
    "behind a pooling": ((64, 960, 1, 1), (240, 960, 1, 1), (1, 1), LARGE_CONVOLUTION),
}
"""name -> sizes of image, weight and images of the result, kind: those like what was measured are predicted."""


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kinds_are_of_convolutions_like_those_that_were_measured(name):
    image, weight, result, kind = CONVOLUTIONS[name]
    assert convolution_kind(image, weight, image[0] * weight[0] * math.prod(result), "bfloat16", H200) == kind
