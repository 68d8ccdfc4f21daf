"""The C interface: programs that tracework.save() wrote give there what tracework.load() gives, to the bit, and are refused in the same words."""

import ctypes
import fcntl
import io
import os
import re
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import tracework
from torch import nn
from torch.export import Dim
from tracework_runtime import InputError, ProgramFileError
from tracework_runtime.program import archive

NATIVE = Path(__file__).parents[1]
BUILD_SECONDS = 600
RUN_SECONDS = 60


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder that the library and the example are built in, once for all workers."""
    for tool, names in (("C++ compiler", ("c++", "g++", "clang++")), ("cmake", ("cmake",))):
        if not any(map(shutil.which, names)):
            pytest.skip(f"there is no {tool}")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "native"  # of this run
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "libtracework.so").exists():
            torch_folder = Path(torch.__file__).parent
            configure = ["cmake", "-S", str(NATIVE), "-B", str(folder), f"-DCMAKE_PREFIX_PATH={torch_folder}"]
            configure.append("-DCMAKE_CXX_FLAGS_RELEASE=-O1")  # compiled in two thirds of the time
            for command in (configure, ["cmake", "--build", str(folder), "--parallel", "2"]):
                subprocess.run(command, check=True, timeout=BUILD_SECONDS)
    return folder


# --- the header for ctypes ------------------------------------------------------------------------------------------------


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Union(ctypes.Union):
    _fields_ = [("tensor", Tensor), ("integer", ctypes.c_int64), ("real", ctypes.c_double), ("text", ctypes.c_char_p)]


class Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("held", Union)]


class Info(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("dtype", DataType),
        ("ndim", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
    ]


NONE, TENSOR, INT, FLOAT, BOOL, STRING = range(6)
DTYPES = {"float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16), "int64": (0, 64), "bool": (6, 8), "float16": (2, 16)}


class Refused(Exception):
    pass


class Native:
    """The library."""

    def __init__(self, folder):
        self.library = ctypes.CDLL(str(folder / "libtracework.so"))
        for name, result in {
            **dict.fromkeys(("load", "run"), ctypes.c_void_p),
            **dict.fromkeys(("input_count", "output_count", "result_count"), ctypes.c_size_t),
            **dict.fromkeys(("input", "output"), ctypes.POINTER(Info)),
            "result_value": ctypes.POINTER(Value),
            "last_error": ctypes.c_char_p,
        }.items():
            getattr(self.library, f"tw_{name}").restype = result

    def load(self, file, key=None):
        return Loaded(self, self.checked(self.library.tw_load(str(file).encode(), key)))

    def checked(self, made):
        if not made:
            raise Refused(self.library.tw_last_error().decode())
        return ctypes.c_void_p(made)


class Loaded:
    """A program: called with tensors, numbers and texts, it gives a list."""

    def __init__(self, native, handle):
        self.native, self.handle = native, handle

    def __del__(self):
        self.native.library.tw_free(self.handle)

    def infos(self, kind):
        count = getattr(self.native.library, f"tw_{kind}_count")(self.handle)
        found = [getattr(self.native.library, f"tw_{kind}")(self.handle, ctypes.c_size_t(n))[0] for n in range(count)]
        return [(i.name.decode(), i.kind, i.dtype.bits, [i.sizes[n] for n in range(i.ndim)]) for i in found]

    def __call__(self, *args):
        library, held = self.native.library, []
        values = (Value * len(args))(*[_value(arg, held) for arg in args])
        result = self.native.checked(library.tw_run(self.handle, values, ctypes.c_size_t(len(args))))
        count = library.tw_result_count(result)
        found = [_read(library.tw_result_value(result, ctypes.c_size_t(n))[0]) for n in range(count)]
        library.tw_result_free(result)
        return found


def _value(arg, held):
    if isinstance(arg, torch.Tensor):
        sizes, strides = ((ctypes.c_int64 * arg.dim())(*numbers) for numbers in (arg.shape, arg.stride()))
        held.append((arg, sizes, strides))
        code, bits = DTYPES[str(arg.dtype).removeprefix("torch.")]
        offset = arg.storage_offset() * arg.itemsize
        made = Tensor(arg.untyped_storage().data_ptr(), (1, 0), arg.dim(), DataType(code, bits, 1), sizes, strides, offset)
        return Value(TENSOR, Union(tensor=made))
    kinds = {bool: (BOOL, "integer"), int: (INT, "integer"), float: (FLOAT, "real"), str: (STRING, "text")}
    if type(arg) not in kinds:
        return Value(NONE)
    kind, field = kinds[type(arg)]
    return Value(kind, Union(**{field: arg.encode() if kind == STRING else arg}))


def _read(value):
    if value.kind != TENSOR:
        field = {INT: "integer", BOOL: "integer", FLOAT: "real", STRING: "text"}.get(value.kind)
        found = None if field is None else getattr(value.held, field)
        return bool(found) if value.kind == BOOL else found.decode() if value.kind == STRING else found
    given = value.held.tensor
    dtype = next(name for name, facts in DTYPES.items() if facts == (given.dtype.code, given.dtype.bits))
    sizes, strides = ([p[n] for n in range(given.ndim)] for p in (given.shape, given.strides))
    reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if 0 not in sizes else 0
    itemsize = getattr(torch, dtype).itemsize
    content = ctypes.string_at(given.data + given.byte_offset, reach * itemsize)
    flat = (
        torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype))
        if reach
        else torch.empty(0, dtype=getattr(torch, dtype))
    )
    return flat.as_strided(sizes, strides)


# --- programs -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.three(self.before(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.wide(self.between(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(32, 64)
        self.blocks, self.norm, self.head = nn.Sequential(Block(64, 4), Block(64, 4)), nn.LayerNorm(64), nn.Linear(64, 100)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.words(ids) + self.places(torch.arange(ids.shape[1])))))


class Stage(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm, self.norm2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.past = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return (self.norm2(self.two(self.norm(self.one(x)).relu())) + self.past(x)).relu()


def resnet():
    begin = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*begin, Stage(16, 16, 1), Stage(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


class Counting(nn.Module):
    """It writes to a buffer of its own, and to its argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen.add_(x.sum(0))
        x.mul_(2)
        return self.seen * 1


class Remembering(nn.Module):
    """Two layers with a cache each, as decoders have them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(4, 4) for _ in range(2))
        self.register_buffer("keys", torch.zeros(2, 8, 4))
        self.register_buffer("values", torch.zeros(2, 8, 4))

    def forward(self, x, at):
        self.keys[:, at] = self.first(x)
        self.values.index_copy_(1, at[None], self.second(x)[:, None])
        return self.keys.sum(1) + self.values.mean(1)


def containers(given, scale, *, flag=None):
    x, (y, n) = given["x"], given["rest"]
    return {"sum": x + y * n * scale, "flag": flag, "views": (x.t(), x[0], y)}


def x(*sizes):
    return torch.randn(*sizes)


def ids(*sizes):
    return torch.randint(0, 100, sizes)


BATCH = {"input": {0: Dim("batch", max=64)}}
IMAGES = {"input": {0: Dim("n"), 2: Dim("h", min=16), 3: Dim("w", min=16)}}
PROGRAMS = {
    "open sizes": (mlp, (x(4, 8),), BATCH, [(x(7, 8),), (x(1, 8),), (x(64, 8),)]),
    "images": (resnet, (x(2, 3, 64, 64),), None, [(x(2, 3, 64, 64),)] * 3),
    "images of open sizes": (resnet, (x(2, 3, 64, 64),), IMAGES, [(x(3, 3, 32, 48),), (x(2, 3, 64, 64),)]),
    "a decoder": (Gpt, (ids(2, 16),), {"ids": {0: Dim("n"), 1: Dim("t", max=32)}}, [(ids(2, 16),), (ids(3, 31),), (ids(1, 1),)]),
    "packed layers": (
        lambda: nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 256)),
        (x(32, 768),),
        None,
        [(x(32, 768),)] * 2,
    ),
    "bfloat16": (lambda: mlp().bfloat16(), (x(4, 8).bfloat16(),), None, [(x(4, 8).bfloat16(),)]),
    "writes": (Counting, (x(4, 8),), None, [(x(4, 8),), (x(4, 8),)]),
    "caches": (Remembering, (x(2, 4), torch.tensor(3)), None, [(x(2, 4), torch.tensor(n)) for n in (0, 7, 3)]),
    "recurrent": (lambda: nn.LSTM(4, 6), (x(5, 2, 4),), None, [(x(5, 2, 4),)]),
    "sorted": (lambda: lambda x: (x.sort(-1), x.topk(2), x.erfinv()), (x(4, 9),), None, [(x(4, 9),)]),
    "library calls": (lambda: lambda x: (torch.linalg.qr(x), torch.fft.rfft(x).abs(), x @ x.T), (x(5, 5),), None, [(x(5, 5),)]),
    "sizes given back": (lambda: lambda x: (x.shape[0] * 2, x.sum(), x.t()), (x(4, 5),), {"x": {0: Dim("n")}}, [(x(9, 5),)]),
    "not contiguous": (lambda: lambda x: x.t() + 1, (x(4, 6).t(),), None, [(x(4, 6).t(),)]),
}
"""A function or module, examples, open sizes, and calls."""


def leaves(value):
    """As C sees arguments and results."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else None
    return [value] if parts is None else [leaf for part in parts for leaf in leaves(part)]


def same(found, wanted):
    if not isinstance(wanted, torch.Tensor):
        return type(found) is type(wanted) and found == wanted
    facts = [(t.dtype, t.shape, t.stride()) for t in (found, wanted)]
    return facts[0] == facts[1] and bool(((found == wanted) | ((found != found) & (wanted != wanted))).all())


@pytest.fixture(scope="module")
def native(built):
    return Native(built)


def saved(path, name="open sizes", **arguments):
    make, examples, shapes, _ = PROGRAMS[name]
    torch.manual_seed(0)
    function = make()
    function = function.eval() if isinstance(function, nn.Module) else function
    tracework.save(tracework.aot_compile(function, examples, dynamic_shapes=shapes), path, **arguments)
    return path


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_pythons(native, tmp_path, name):
    file = saved(tmp_path / "m.tw", name)
    ours, pythons = native.load(file), tracework.load(file)
    for call in PROGRAMS[name][3]:
        one, other = ([arg.clone(memory_format=torch.preserve_format) for arg in call] for _ in range(2))
        wanted, found = leaves(pythons(*one)), ours(*other)
        assert len(found) == len(wanted) and all(map(same, found, wanted))
        assert all(map(same, other, one))  # what is written to


def test_containers_are_taken_apart(native, tmp_path):
    given = ({"x": x(3, 3), "rest": (x(3, 3), 2)}, 1.5)
    tracework.save(tracework.aot_compile(containers, given, {"flag": "on"}), tmp_path / "m.tw")
    loaded = native.load(tmp_path / "m.tw")
    assert [name for name, *_ in loaded.infos("input")] == ["given.x", "given.rest[0]", "given.rest[1]", "scale", "flag"]
    assert all(map(same, loaded(*leaves(given), "on"), leaves(containers(*given, flag="on"))))
    with pytest.raises(Refused, match="flag: expected 'on', got 'off'"):
        loaded(*leaves(given), "off")


def test_arguments_and_results_are_described(native, tmp_path):
    loaded = native.load(saved(tmp_path / "m.tw"))
    assert loaded.infos("input") == [("input", TENSOR, 32, [-1, 8])]
    assert loaded.infos("output") == [("result", TENSOR, 32, [-1, 4])]


def test_the_example_runs_a_program(built, tmp_path):
    given, file = x(7, 8), saved(tmp_path / "m.tw")
    (tmp_path / "x.bin").write_bytes(given.numpy().tobytes())
    command = [str(built / "run_program"), str(file), f"7x8:{tmp_path}/x.bin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["argument input: -1 8", "result result: -1 4"]
    assert (tmp_path / "result0.bin").read_bytes() == tracework.load(file)(given).numpy().tobytes()
    file.write_bytes(file.read_bytes()[:-100])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 1 and "cut short" in done.stderr


# --- what is refused, in Python's words -----------------------------------------------------------------------------------

CALLS = {
    "a wrong dtype": (x(4, 8).double(),),
    "too many": (x(65, 8),),
    "a wrong size": (x(4, 9),),
    "a wrong rank": (x(8),),
    "wrong strides": (x(8, 4).t(),),
    "no tensor": (3,),
    "nothing": (None,),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_are_refused_in_pythons_words(native, tmp_path, call):
    file = saved(tmp_path / "m.tw")
    with pytest.raises(InputError) as pythons:
        tracework.load(file)(*CALLS[call])
    with pytest.raises(Refused, match="^" + re.escape(str(pythons.value)) + "$"):
        native.load(file)(*CALLS[call])


TENSORS = {
    # fields of a tensor that are none, and the words
    "no sizes": ({"shape": None}, "a tensor of rank 2 without sizes"),
    "a negative rank": ({"ndim": -1}, "a tensor of rank -1"),
    "a negative size": ({"shape": (ctypes.c_int64 * 2)(-4, 8)}, "size -4 and stride 8 of dim 0"),
    "a negative stride": ({"strides": (ctypes.c_int64 * 2)(-8, 1)}, "size 4 and stride -8 of dim 0"),
    "too large": ({"shape": (ctypes.c_int64 * 2)(1 << 62, 8)}, "more elements than memory has"),
    "no memory": ({"data": None}, "no memory"),
    "of a GPU": ({"device": (2, 0)}, "device: expected cpu, got DLPack's 2"),
}


@pytest.mark.parametrize("what", TENSORS)
def test_what_is_no_tensor(native, tmp_path, what):
    loaded, held, (fields, message) = native.load(saved(tmp_path / "m.tw")), [], TENSORS[what]
    value = _value(x(4, 8), held)
    for name, field in fields.items():
        setattr(value.held.tensor, name, field)
    assert not native.library.tw_run(loaded.handle, ctypes.byref(value), ctypes.c_size_t(1))
    assert f"input: {message}" in native.library.tw_last_error().decode()


def test_memory_that_is_not_aligned(native, tmp_path):
    file, given, held = saved(tmp_path / "m.tw"), x(4, 8), []
    loaded = native.load(file)
    value, memory = _value(given, held), ctypes.create_string_buffer(b"-" + given.numpy().tobytes())
    value.held.tensor.data, value.held.tensor.byte_offset = ctypes.addressof(memory), 1
    result = native.checked(native.library.tw_run(loaded.handle, ctypes.byref(value), ctypes.c_size_t(1)))
    found = _read(native.library.tw_result_value(result, ctypes.c_size_t(0))[0])
    native.library.tw_result_free(result)
    assert same(found, tracework.load(file)(given))


def test_nothing_is_run(native):
    with pytest.raises(Refused, match="no program"):
        native.checked(native.library.tw_run(None, None, ctypes.c_size_t(0)))


def test_the_number_of_arguments(native, tmp_path):
    with pytest.raises(Refused, match=r"expected 1 arguments \(input\), got 2"):
        native.load(saved(tmp_path / "m.tw"))(x(4, 8), 1)


def test_shared_memory_that_is_written_to(native, tmp_path):
    def add(x, y):
        return x.add_(y)

    tracework.save(tracework.aot_compile(add, (x(4), x(4))), tmp_path / "m.tw")
    memory = x(6)
    with pytest.raises(Refused, match="two tensors of the call share memory"):
        native.load(tmp_path / "m.tw")(memory[:4], memory[2:])


def test_an_index_out_of_range(native, tmp_path):
    loaded = native.load(saved(tmp_path / "m.tw", "a decoder"))
    with pytest.raises(Refused, match=r"index out of range in embedding, .*test_native.py:\d+ in forward"):
        loaded(ids(2, 3) + 100)


def members(data):
    given = zipfile.ZipFile(io.BytesIO(data))
    return {info.filename: given.read(info) for info in given.infolist()}


def zipped(content):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        for name, data in content.items():
            out.writestr(name, data)
    return made.getvalue()


def exchanged(data, end):
    content = members(data)
    name = next(name for name in content if name.endswith(end))
    return zipped({**content, name: content[name][:-1] + bytes([content[name][-1] ^ 1])})


def rewritten(data, change):
    """A file with another manifest, sealed."""
    given = archive.Archive(io.BytesIO(data))
    manifest, made = dict(given.manifest), io.BytesIO()
    content = {name: given.member(name) for name in manifest.pop("members")}
    change(manifest)
    archive.write(made, manifest, content)
    return made.getvalue()


def of_machine(**facts):
    return lambda data: rewritten(data, lambda manifest: [t["machine"].update(facts) for t in manifest["targets"]])


DAMAGED = {
    "empty": lambda data: b"",
    "no zip": lambda data: b"something else" * 9,
    "another zip": lambda data: zipped({"a": b"b"}),
    "cut short": lambda data: data[:-30],
    "without a member": lambda data: zipped({n: c for n, c in members(data).items() if not n.endswith(".so")}),
    "with one more": lambda data: zipped({**members(data), "more": b""}),
    "a name that is no text": lambda data: data.replace(b"weights.bin", b"weights.b\xecn"),
    "another manifest": lambda data: exchanged(data, "manifest.json"),
    "an exchanged artifact": lambda data: exchanged(data, ".twa"),
    "an exchanged kernel": lambda data: exchanged(data, ".so"),
    "exchanged weights": lambda data: exchanged(data, "weights.bin"),
    "a damaged seal": lambda data: exchanged(data, "seal.json"),
    "a newer schema": lambda data: rewritten(data, lambda manifest: manifest.update(schema=2)),
    "another kind": lambda data: rewritten(data, lambda manifest: manifest.update(kind="weights")),
    "another torch": of_machine(torch="1.13"),
    "another system": of_machine(system="Plan 9"),
    "another architecture": of_machine(machine="vax"),
    "another CPU": of_machine(instructions=["avx1024", "fma9"]),
    "another format": of_machine(format=99),
}
SAME_ENDING = re.compile(r"\(.*\)", re.DOTALL)  # what a zip or JSON reader says of damage is its own


@pytest.mark.parametrize("damage", DAMAGED)
def test_files_are_refused_in_pythons_words(native, tmp_path, damage):
    file = saved(tmp_path / "m.tw")
    file.write_bytes(DAMAGED[damage](file.read_bytes()))
    with pytest.raises(ProgramFileError) as pythons:
        tracework.load(file)
    with pytest.raises(Refused) as ours:
        native.load(file)
    assert SAME_ENDING.sub("", str(ours.value)) == SAME_ENDING.sub("", str(pythons.value))


def test_one_file_for_several_cpus(native, tmp_path):
    torch.manual_seed(0)
    net, file = mlp().eval(), tmp_path / "m.tw"
    tracework.save(tracework.aot_compile(net, (x(4, 8),), targets=("avx2", "avx512")), file)

    def spoil(manifest):
        manifest["targets"][0]["machine"]["instructions"] = ["avx1024"]

    for data in (file.read_bytes(), rewritten(file.read_bytes(), spoil)):
        file.write_bytes(data)
        given = x(4, 8)
        assert same(native.load(file)(given)[0], tracework.load(file)(given))


def test_programs_for_gpus_are_refused(native, tmp_path):
    file = saved(tmp_path / "m.tw")
    file.write_bytes(of_machine(devices=["cpu", "cuda:0"])(file.read_bytes()))
    with pytest.raises(Refused, match=r"made for a GPU \(cuda:0\), and this library runs programs for the CPU"):
        native.load(file)


def test_weights_lie_beside_or_are_left_out(native, tmp_path):
    file, given = saved(tmp_path / "m.tw", weights="beside"), x(4, 8)
    assert same(native.load(file)(given)[0], tracework.load(file)(given))
    beside = tmp_path / "m.tw.weights"
    beside.write_bytes(saved(tmp_path / "other.tw", "packed layers", weights="beside").with_suffix(".tw.weights").read_bytes())
    with pytest.raises(Refused, match="not those that it was saved with"):
        native.load(file)
    beside.unlink()
    with pytest.raises(Refused, match="lie beside it, and are not there"):
        native.load(file)
    with pytest.raises(Refused, match="its weights were left out"):
        native.load(saved(tmp_path / "m.tw", weights="left out"))


def test_keys(native, tmp_path):
    file = saved(tmp_path / "m.tw", key="ours")
    assert native.load(file, b"ours") and native.load(file)
    for key, message in {b"theirs": "signed with another key", b"": "the key is empty"}.items():
        with pytest.raises(Refused, match=message):
            native.load(file, key)
    with pytest.raises(Refused, match="not signed"):
        native.load(saved(tmp_path / "m.tw"), b"ours")


ONLY_PYTHON = {
    "prims.uniform": (lambda x: x + torch.rand_like(x), (x(3),)),
    "prims.grid_sample": (lambda a, g: nn.functional.grid_sample(a, g, align_corners=False), (x(1, 2, 5, 5), x(1, 3, 3, 2))),
}


@pytest.mark.parametrize("what", ONLY_PYTHON)
def test_what_only_python_has_is_named(native, tmp_path, what):
    tracework.save(tracework.aot_compile(*ONLY_PYTHON[what]), tmp_path / "m.tw")
    with pytest.raises(Refused, match=f"it calls {what}, which only Python has\n  try: load it with tracework.load"):
        native.load(tmp_path / "m.tw")


def test_threads_call_one_program(native, tmp_path):
    file = saved(tmp_path / "m.tw", "a decoder")
    loaded, python, calls = native.load(file), tracework.load(file), [ids(2, n) for n in range(2, 10)]
    wanted = list(map(python, calls))
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(same, [found for (found,) in pool.map(loaded, calls, timeout=RUN_SECONDS)], wanted))
