"""The launcher against a driver that writes down what it is asked."""

import contextlib
import ctypes
import gc
import struct
import weakref

import pytest
import torch
from tracework_runtime import KernelSource, LaunchError, RuntimeOptions, Store
from tracework_runtime.build import triton as build
from tracework_runtime.launch import triton as launch


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of the driver."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class PaperDriver:
    """Reads the arguments of a launch as the device would."""

    def __init__(self, layout: str) -> None:
        self.layout, self.launches, self.devices, self.status = layout, [], [], 0
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self.launch)
        self.launch_address = ctypes.cast(self.function, ctypes.c_void_p).value

    def load(self, code, symbol, shared, device):
        return 77

    def current_stream(self, device):
        return 5

    def check(self, status, doing):
        if status:
            raise LaunchError(f"{status} {doing}")

    def make_current(self, device):
        self.status = 0

    @contextlib.contextmanager
    def on(self, device):
        self.devices.append(device)
        self.status = 0
        yield

    def launch(self, config, function, parameters, extra):
        size = LaunchConfig.from_address(config)
        pointers = (ctypes.c_void_p * len(self.layout)).from_address(parameters)
        values = [struct.unpack("@" + c, ctypes.string_at(p, struct.calcsize(c)))[0] for c, p in zip(self.layout, pointers)]
        self.launches.append((function, size.grid_x, size.block_x, size.stream, values))
        return self.status


@pytest.fixture
def compiled(monkeypatch):
    jobs = []

    def build_all(requests, options, store):
        jobs.extend(requests)
        return [build.Cubin(b"", r["entry"], 0, r["num_warps"], len(r["arguments"]) + 2) for r in requests]

    monkeypatch.setattr(build, "build_all", build_all)
    return jobs


def kernel(signature, **facts):
    record = {
        "entries": ["kernel"],
        "grids": ["-(-ks0 // XBLOCK)" if "i64" in signature else "-(-1000 // XBLOCK)"],
        "configs": [{"constants": {"XBLOCK": 128}, "num_warps": 4, "num_stages": 1}],
        "fits32": "ks0 <= 2147483647" if "i64" in signature else None,
        "workspace": [],
        **facts,
    }
    return KernelSource("k0", "triton", "source", signature, record)


def bind(source, driver, tmp_path):
    return launch.bind_all([source], RuntimeOptions(), Store(tmp_path / "c"), 0, driver)["k0"]


def test_static_launch(compiled, tmp_path):
    driver = PaperDriver("PPPP")
    call = bind(kernel(("*fp32", "*fp32")), driver, tmp_path)
    a, b = torch.empty(1000), torch.empty(1000)
    for _ in range(2):
        call(a, b)
    assert driver.launches == [(77, 8, 128, 5, [a.data_ptr(), b.data_ptr(), 0, 0])] * 2
    call(a.data_ptr(), b)
    assert driver.launches[2] == driver.launches[0]
    assert compiled[0]["aligned"] == ["p0", "p1"]


def test_sizes_and_wide_indices(compiled, tmp_path):
    driver = PaperDriver("PiPP")
    call = bind(kernel(("*fp32", "i64")), driver, tmp_path)
    a = torch.empty(300)
    call(a, 300)
    assert driver.launches[-1][1] == 3
    assert driver.launches[-1][4][:2] == [a.data_ptr(), 300]
    driver.layout = "PqPP"
    call(a, 2**33)
    assert driver.launches[-1][4][:2] == [a.data_ptr(), 2**33]
    assert compiled[-1]["constants"]["WIDE"] is True
    driver.layout = "PiPP"
    count = len(driver.launches)
    call(a, 0)
    assert len(driver.launches) == count


def test_unaligned_pointers_get_their_own_variant(compiled, tmp_path):
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",)), driver, tmp_path)
    call(torch.empty(1001)[1:])
    assert compiled[-1]["aligned"] == []


def test_driver_errors_are_raised(compiled, tmp_path):
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",)), driver, tmp_path)
    driver.status = 1
    with pytest.raises(LaunchError, match="k0"):
        call(torch.empty(10))


@pytest.mark.parametrize("stages", [1, 2])
def test_a_thread_without_context_gets_one_and_launches_again(compiled, tmp_path, stages):
    driver = PaperDriver("PPP")
    source = kernel(("*fp32",), entries=["kernel"] * stages, grids=["4"] * stages)
    call = bind(source, driver, tmp_path)
    call(torch.empty(1000))
    before = len(driver.launches)
    driver.status = 201
    call(torch.empty(1000))
    assert len(driver.launches) == before + stages + 1


def test_a_thread_on_another_device_launches_there_and_goes_back(compiled, tmp_path):
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",)), driver, tmp_path)
    call(torch.empty(1000))
    driver.status = 400
    call(torch.empty(1000))
    assert driver.devices == [0] and len(driver.launches) == 3


def test_kernels_may_name_their_device(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(launch.cuda, "capability", lambda index: 90)
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",), device=3), driver, tmp_path)
    driver.status = 400
    call(torch.empty(1000))
    assert driver.devices == [3]


def test_stages_share_scratch_memory(compiled, tmp_path, monkeypatch):
    made = []

    def allocate(self, size):
        made.append(torch.empty(size, dtype=torch.uint8))
        return made[-1]

    monkeypatch.setattr(launch.TritonKernel, "_allocate", allocate)
    driver = PaperDriver("PPPPP")
    scratch = [{"elements": "100", "dtype": "float32"}, {"elements": "3", "dtype": "int64"}]
    facts = {"entries": ["first", "second"], "grids": ["4", "1"], "workspace": scratch}
    call = bind(kernel(("*fp32",), **facts), driver, tmp_path)
    a = torch.empty(1000)
    call(a)
    first = made[0].data_ptr()
    assert [blocks for _, blocks, *_ in driver.launches] == [4, 1]
    assert {tuple(values) for *_, values in driver.launches} == {(a.data_ptr(), first, first + 512, 0, 0)}
    assert made[0].numel() == 512 + 128


def test_memory_of_a_kernels_own(compiled, tmp_path, monkeypatch):
    """What Triton wants for each block lies behind the scratch arrays, of each function elsewhere, at the first parameter it adds."""
    made = []
    monkeypatch.setattr(
        launch.TritonKernel, "_allocate", lambda self, size: made.append(torch.empty(size, dtype=torch.uint8)) or made[-1]
    )
    wanted = {"first": 384, "second": 0, "third": 100}

    def build_all(requests, options, store):
        return [build.Cubin(b"", r["entry"], 0, 4, len(r["arguments"]) + 2, wanted[r["entry"]], 128) for r in requests]

    monkeypatch.setattr(build, "build_all", build_all)
    driver, a = PaperDriver("PPPP"), torch.empty(1000)
    facts = {"entries": list(wanted), "grids": ["4", "1", "3"], "workspace": [{"elements": "10", "dtype": "float32"}]}
    bind(kernel(("*fp32",), **facts), driver, tmp_path)(a)
    first = made[0].data_ptr()
    own = [first + 128, 0, first + 128 + 4 * 384]
    assert [values for *_, values in driver.launches] == [[a.data_ptr(), first, place, 0] for place in own]
    assert made[0].numel() == 128 + 4 * 384 + 384
    driver.layout = "PPP"
    bind(kernel(("*fp32",), entries=["first"], grids=["2"]), driver, tmp_path)(a)
    assert driver.launches[-1][-1] == [a.data_ptr(), made[1].data_ptr(), 0] and made[1].numel() == 768
    wanted["first"] = 0
    bind(kernel(("*fp32",), entries=["first"], grids=["2"]), driver, tmp_path)(a)
    assert driver.launches[-1][-1] == [a.data_ptr(), 0, 0] and len(made) == 2


@pytest.mark.parametrize(
    ("most", "stages"), [(227 << 10, [3]), (163 << 10, [3, 2]), (99 << 10, [3, 2, 1]), (64 << 10, [3, 2, 1])], ids=str
)
def test_a_device_with_less_shared_memory_has_fewer_steps_under_way(tmp_path, monkeypatch, most, stages):
    """With one step there is no less, and the driver says what is wrong."""
    built, loaded = [], []

    def build_all(requests, options, store):
        built.extend(r["num_stages"] for r in requests)
        return [build.Cubin(b"", r["entry"], r["num_stages"] * 65 << 10, 4, len(r["arguments"]) + 2) for r in requests]

    class SmallDevice(PaperDriver):
        def most_shared(self, device):
            return most

        def load(self, code, symbol, shared, device):
            loaded.append(shared)
            return 77

    monkeypatch.setattr(build, "build_all", build_all)
    configs = [{"constants": {"XBLOCK": 128}, "num_warps": 4, "num_stages": 3}]
    bound = bind(kernel(("*fp32",), configs=configs), SmallDevice("PPP"), tmp_path)
    built.clear()  # what was begun before the first launch
    bound(torch.empty(1000))
    assert built == stages and loaded == [stages[-1] * 65 << 10]


def test_memory_that_the_launcher_cannot_give(tmp_path, monkeypatch):
    def build_all(requests, options, store):
        return [build.Cubin(b"", r["entry"], 0, 4, len(r["arguments"]) + 2, 64, 4096) for r in requests]

    monkeypatch.setattr(build, "build_all", build_all)
    with pytest.raises(LaunchError, match="memory"):
        bind(kernel(("*fp32",)), PaperDriver("PPP"), tmp_path)(torch.empty(1000))


def test_kernels_that_ask_for_alignment(compiled, tmp_path):
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",), by_alignment=True), driver, tmp_path)
    for tensor, aligned in ((torch.empty(1000), True), (torch.empty(1001)[1:], False)):
        call(tensor)
        assert compiled[-1]["constants"]["ALIGNED"] is aligned


def test_numbers_of_every_kind(compiled, tmp_path):
    driver = PaperDriver("Pifd?iPP")
    source = kernel(("*fp32", "i64", "fp32", "fp64", "i1", "i32"), grids=["4"])
    call = bind(source, driver, tmp_path)
    a = torch.empty(300)
    for numbers in ((-3, 0.5, 0.1, True, 7), (-3, 0.5, 0.2, False, 7), (5, 1, 2, 0, -1)):
        call(a, *numbers)
        assert driver.launches[-1][4][1:6] == list(numbers)
    with pytest.raises(OverflowError):
        call(a, 2**70, 0.5, 0.1, True, 7)


def test_wrong_arguments_are_refused(compiled, tmp_path):
    driver = PaperDriver("PiPP")
    call = bind(kernel(("*fp32", "i64")), driver, tmp_path)
    with pytest.raises(TypeError, match="1 tensors and 1 numbers got 1"):
        call(torch.empty(4))
    with pytest.raises(TypeError, match="takes a tensor here"):
        call("a", torch.empty(4))
    with pytest.raises(TypeError):
        call(torch.empty(4), "a")
    with pytest.raises(TypeError, match="keyword"):
        call(torch.empty(4), a=4)
    assert not driver.launches


def test_errors_of_what_a_launch_asks_for_are_raised(compiled, tmp_path):
    driver = PaperDriver("PPP")

    def current_stream(device):
        raise ValueError("no stream")

    driver.current_stream = current_stream
    with pytest.raises(ValueError, match="no stream"):
        bind(kernel(("*fp32",)), driver, tmp_path)(torch.empty(10))


def test_what_a_kernel_holds_ends_with_it(compiled, tmp_path):
    driver = PaperDriver("PPP")
    call = bind(kernel(("*fp32",)), driver, tmp_path)
    call(torch.empty(10))
    ended = weakref.ref(driver)
    del driver, call
    gc.collect()
    assert ended() is None
