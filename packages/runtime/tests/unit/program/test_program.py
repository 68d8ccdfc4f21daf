"""Programs as files: what is written is read again, and what is no whole file of ours for this machine is refused, with what to do."""

import io
import json
import re
import zipfile

import pytest
import torch
from tracework_runtime import Artifact, CacheUnsafe, InputError, LoadError, Program, ProgramFileError, load_program
from tracework_runtime.program.checks import layout_advice
from tracework_runtime.program.program import Contents
from tracework_runtime.program.target import facts_of_machine
from tracework_runtime.program.weights import described

HOST = "def call(args):\n    x, w = args\n    args.clear()\n    return (x * w, x.shape[0])\n"
FACTS = {"dtype": "float32", "device": "cpu", "sizes": [None, 3], "strides": [3, 1], "requires_grad": False}
X = ["tensor", {**FACTS, "shown": "float32[2 to 8, 3] on cpu"}]
OUTPUT = {"kind": "fresh", "steps": [], "constant": None}
ENTRY = {
    "artifact": 0,
    "inputs": [["argument", ["args", 0]], ["weight", "scale"]],
    "arguments": [["tuple", [X, ["constant", 2]]], ["dict", [], []]],
    "symbols": {"s0": ["size", ["args", 0], 0]},
    "conditions": [["s0 <= 8", ""], ["s0 >= 2", "a.py:3 in f"]],
    "same": [],
    "places": [],
    "state": {"default_dtype": "float32", "deterministic": False},
    "devices": ["cpu"],
    "cudagraphs": False,
    "written": [],
    "versions": [],
    "outputs": [{**OUTPUT, "slot": 0}, {**OUTPUT, "slot": 1, "kind": "size"}],
    "result": ["dict", ["y", "n"], [["output", 0], ["tuple", [["output", 1], ["argument", ["args", 1]]]]]],
}


def program(entry=None, target=None, artifact=None):
    weights = {"scale": torch.tensor([1.0, 2.0, 3.0])}
    manifest = {
        "name": "f",
        "parameters": [["x", "POSITIONAL_OR_KEYWORD", []], ["k", "POSITIONAL_OR_KEYWORD", [2]]],
        "targets": [
            {"machine": {**facts_of_machine(["cpu"]), **(target or {})}, "folder": "t/", "entries": [{**ENTRY, **(entry or {})}]}
        ],
        "weights": described(weights)[0],
        "names": ["scale", "other"],
        "aliases": {"tied": "scale"},
    }
    members = {"t/artifacts/0.twa": (artifact or Artifact("k" * 8, HOST)).to_bytes()}
    return Program(Contents(manifest, members, weights))


def saved(made=None, **arguments):
    file = io.BytesIO()
    (made or program()).save(file, **arguments)
    return file.getvalue()


def test_a_file_is_the_program():
    x = torch.ones(4, 3)
    for loaded in (program(), load_program(io.BytesIO(saved()))):
        found = loaded(k=2, x=x)
        assert found["n"] == (4, 2) and torch.equal(found["y"], x * torch.tensor([1.0, 2.0, 3.0]))
    assert saved() == saved()


def test_weights_lie_beside_or_are_those_of_a_module(tmp_path):
    name, x = tmp_path / "m.tw", torch.ones(2, 3)
    program().save(name, weights="beside")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tw", "m.tw.weights"]
    assert torch.equal(load_program(name)(x)["y"], program()(x)["y"])
    other = program()
    other.load_state_dict({"scale": torch.zeros(3)})
    (tmp_path / "m.tw.weights").write_bytes(saved(other))
    with pytest.raises(ProgramFileError, match="not those that it was saved with"):
        load_program(name)
    (tmp_path / "m.tw.weights").unlink()
    with pytest.raises(ProgramFileError, match="lie beside it"):
        load_program(name)
    module = torch.nn.Module()
    module.scale = torch.nn.Parameter(torch.full((3,), 5.0))
    loaded = load_program(name, module)
    with torch.no_grad():
        module.scale.add_(1)
    assert torch.equal(loaded(x)["y"], torch.full((2, 3), 6.0)) and not loaded(x)["y"].requires_grad
    with pytest.raises(ProgramFileError, match="left out"):
        load_program(io.BytesIO(saved(weights="left out")))
    with pytest.raises(ValueError, match="weights="):
        program().save(name, weights="nowhere")


WRONG_MODULES = {"no scale": {}, r"scale: expected float32\[3\].*got float32\[4\]": {"scale": torch.ones(4)}}


@pytest.mark.parametrize("message", WRONG_MODULES)
def test_a_module_of_another_kind_is_refused(message):
    module = torch.nn.Module()
    for name, tensor in WRONG_MODULES[message].items():
        module.register_buffer(name, tensor)
    with pytest.raises(InputError, match=message):
        load_program(io.BytesIO(saved()), module)


def test_weights_are_exchanged():
    made, x = load_program(io.BytesIO(saved())), torch.ones(2, 3)
    made.load_state_dict({"scale": torch.zeros(3), "tied": torch.zeros(3), "other": torch.zeros(1)})
    assert not made(x)["y"].any() and sorted(made.state_dict()) == ["scale", "tied"]
    for message, state in {"missing scale; unknown q": {"q": x}, "scale: expected": {"scale": torch.ones(2)}}.items():
        with pytest.raises(InputError, match=message):
            made.load_state_dict(state)
    made.load_state_dict({"q": x}, strict=False)


CALLS = {
    r"x: sizes: expected float32\[2 to 8, 3\] on cpu, got \[4, 2\]": lambda f, x: f(x[:, :2]),
    r"x.size\(0\) <= 8 does not hold: x.size\(0\) is 9; compiled for x": lambda f, x: f(torch.ones(9, 3)),
    r"x.size\(0\) >= 2 does not hold \(needed at a.py:3 in f\): x.size\(0\) is 1": lambda f, x: f(torch.ones(1, 3)),
    "x: dtype: expected float32, got float64": lambda f, x: f(x.double()),
    "x: device: expected cpu, got meta": lambda f, x: f(x.to("meta")),
    r"x: strides: expected \(3, 1\), got \(1, 4\)": lambda f, x: f(x.t().contiguous().t()),
    "x: requires_grad: expected False, got True": lambda f, x: f(x.clone().requires_grad_()),
    "x: expected a tensor, .* got list": lambda f, x: f([x]),
    "x: layout": lambda f, x: f(x.to_sparse()),
    "k: expected 2, got 3": lambda f, x: f(x, 3),
    r"k: expected 2, got 2\.0": lambda f, x: f(x, 2.0),
    "k: expected 2, got Tensor": lambda f, x: f(x, x),
    "torch.autocast is on": lambda f, x: under(torch.autocast("cpu"), f, x),
    r"get_default_dtype\(\): expected float32": lambda f, x: under_dtype(f, x),
}


def under(manager, f, x):
    with manager:
        f(x)


def under_dtype(f, x):
    torch.set_default_dtype(torch.float64)
    try:
        f(x)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("message", CALLS)
def test_calls_that_do_not_fit_say_why(message):
    with pytest.raises(InputError, match=message):
        CALLS[message](program(), torch.ones(4, 3))


def test_gradients_are_not_carried():
    pattern = ["tuple", [["tensor", {**X[1], "requires_grad": True}], ["constant", 2]]]
    made, x = program(entry={"arguments": [pattern, ["dict", [], []]]}), torch.ones(2, 3, requires_grad=True)
    with torch.no_grad():
        assert not made(x)["y"].requires_grad
    for given, message in ((x, "gradients are not carried"), (x.detach(), "requires_grad: expected True, got False")):
        with pytest.raises(InputError, match=message):
            made(given)


def test_missing_arguments_are_errors_of_python():
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        program()()


def rewritten(change, **arguments):
    """The file with another member, or without one (None), or with one more."""
    before = zipfile.ZipFile(io.BytesIO(saved(**arguments)))
    members = {name: before.read(name) for name in before.namelist()}
    members.update(change(members))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as after:
        for name, data in members.items():
            if data is not None:
                after.writestr(name, data)
    return file.getvalue()


def with_manifest(**changes):
    return rewritten(lambda m: {"manifest.json": json.dumps({**json.loads(m["manifest.json"]), **changes})})


def flipped(name):
    def change(members):
        data = bytearray(members[name])
        data[len(data) // 2] ^= 1
        return {name: bytes(data)}

    return change


def packed_otherwise(name):
    data = bytearray(saved())
    data[data.rindex(name.encode()) - 36] = 99  # the method in the list of members
    return bytes(data)


REFUSED = {
    "nothing": (lambda: b"", "no program of tracework, or cut short"),
    "something else": (lambda: b"some text", "no program of tracework, or cut short"),
    "cut short": (lambda: saved()[:-40], "no program of tracework, or cut short"),
    "another zip": (lambda: rewritten(lambda m: {"manifest.json": None}), "a zip file, but no program"),
    "no JSON": (lambda: rewritten(lambda m: {"manifest.json": b"{"}), "manifest is damaged"),
    "of another kind": (lambda: with_manifest(kind="something"), "it is 'something'"),
    "newer": (lambda: with_manifest(schema=2), "schema 2, and this version reads schema 1\n.*newer version"),
    "older": (lambda: with_manifest(schema=0), "schema 0.*\n.*make it again"),
    "a changed manifest": (lambda: with_manifest(name="g"), "its manifest does not have the hash"),
    "no seal": (lambda: rewritten(lambda m: {"seal.json": b"[]"}), "its seal is damaged"),
    "a changed artifact": (lambda: rewritten(flipped("t/artifacts/0.twa")), "artifacts/0.twa does not have the hash"),
    "another artifact": (
        lambda: rewritten(lambda m: {"t/artifacts/0.twa": m["weights.bin"]}),
        "artifacts/0.twa does not have the hash",
    ),
    "changed weights": (lambda: rewritten(flipped("weights.bin")), "weights.bin does not have the hash"),
    "fewer weights": (lambda: rewritten(lambda m: {"weights.bin": b"1234"}), "weights.bin does not have the hash"),
    "a member more": (lambda: rewritten(lambda m: {"other": b""}), r"members that its manifest lists \(other\)"),
    "a member less": (lambda: rewritten(lambda m: {"weights.bin": None}), r"members that its manifest lists \(weights.bin\)"),
    "bytes that do not unpack": (lambda: saved().replace(b"PK\x03\x04", b"PK\x03\x05", 1), "is damaged"),
    "weights in another packing": (lambda: packed_otherwise("weights.bin"), "member weights.bin is damaged"),
    "another torch": (lambda: saved(program(target={"torch": "1.9"})), "made for torch 1.9"),
    "another version": (lambda: saved(program(target={"tracework": "0.0.0"})), "version of tracework 0.0.0"),
    "another format": (lambda: saved(program(target={"format": 1})), "format of artifacts 1"),
    "another system": (lambda: saved(program(target={"system": "Plan9"})), "made for system Plan9"),
    "another architecture": (lambda: saved(program(target={"machine": "vax"})), "architecture vax"),
    "another CPU": (lambda: saved(program(target={"instructions": ["avx1024"]})), "a CPU with avx1024"),
    "a GPU": (lambda: saved(program(target={"devices": ["cuda:0"], "capability": 10})), "torch sees none here|sm_10"),
}


@pytest.mark.parametrize(
    "strides, advice",
    {
        (60, 20, 5, 1): r"call \.contiguous\(\)",
        (60, 1, 15, 3): r"call \.contiguous\(memory_format=torch\.channels_last\)",
        (0, 0, 0, 1): "call it with what it was compiled for",
    }.items(),
)
def test_other_strides_are_asked_for(strides, advice):
    assert re.match(advice, layout_advice((2, 3, 4, 5), tuple(enumerate(strides))))


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_refused(case):
    make, message = REFUSED[case]
    with pytest.raises(ProgramFileError, match=f"(?s){message}"):
        load_program(io.BytesIO(make()))


SIGNED = {
    "not signed": (None, "key", "it is not signed"),
    "another key": ("one", "other", "signed with another key"),
    "the same key": ("one", b"one", None),
    "nobody asks": ("one", None, None),
}


@pytest.mark.parametrize("case", SIGNED)
def test_signatures(case):
    signed_with, asked_for, message = SIGNED[case]
    data = io.BytesIO(saved(key=signed_with))
    if message is None:
        assert load_program(data, key=asked_for)(torch.ones(2, 3))["n"] == (2, 2)
    else:
        with pytest.raises(ProgramFileError, match=message):
            load_program(data, key=asked_for)
    for sign in (lambda: saved(key=""), lambda: load_program(io.BytesIO(saved()), key=b"")):
        with pytest.raises(CacheUnsafe, match="the key is empty"):
            sign()


def test_operators_have_to_be_registered():
    with pytest.raises(LoadError, match="calls the operator nobodys::op.*\n.*import the package"):
        program(artifact=Artifact("k" * 8, HOST, externs=frozenset({"aten::mm", "nobodys::op"})))


MANIFESTS = {
    "inputs": [["elsewhere", 1]],
    "result": ["unknown"],
    "outputs": [{**OUTPUT, "kind": "odd", "slot": 0}],
    "symbols": {"s0": ["odd", [], 0]},
}


@pytest.mark.parametrize("field", MANIFESTS)
def test_manifests_that_make_no_program(field):
    with pytest.raises(ProgramFileError, match="manifest cannot be read"):
        program(entry={field: MANIFESTS[field]})


def test_two_entries_are_tried_in_order():
    one, other = program(), program(entry={"arguments": [["tuple", [X, ["constant", 3]]], ["dict", [], []]]})
    entries = [e for p in (one, other) for e in p._contents.manifest["targets"][0]["entries"]]
    manifest = {**one._contents.manifest, "targets": [{**one._contents.manifest["targets"][0], "entries": entries}]}
    both = Program(Contents(manifest, one._contents.members, one._contents.weights))
    assert [both(torch.ones(2, 3), k)["n"] for k in (2, 3)] == [(2, 2), (2, 3)]
    with pytest.raises(InputError, match="(?s)no entry.*0: k: expected 2, got 4.*1: k: expected 3, got 4"):
        both(torch.ones(2, 3), 4)


WRITES = "def call(args):\n    x, w = args\n    args.clear()\n    x.mul_(w)\n    return (x * 1, x.shape[0])\n"


def test_writes_count_versions_and_need_memory_of_their_own():
    made = program(entry={"written": [[0, 1]]}, artifact=Artifact("k" * 8, WRITES))
    x = torch.ones(2, 3)
    made(x)
    assert x._version == 1 and torch.equal(x[0], torch.tensor([1.0, 2.0, 3.0]))
    with torch.inference_mode():
        made(torch.ones(2, 3))
    made._weights["scale"] = x[1]
    with pytest.raises(InputError, match="share memory"):
        made(x)


def test_the_target_that_fits_is_taken():
    one, other = (
        program(target={"machine": "vax"}),
        program(entry={"arguments": [["tuple", [X, ["constant", 3]]], ["dict", [], []]]}),
    )
    (first,), (second,) = (p._contents.manifest["targets"] for p in (one, other))
    manifest = {**one._contents.manifest, "targets": [{**first, "folder": "vax/"}, second]}
    members = {**other._contents.members, "vax/artifacts/0.twa": b"of a vax"}
    loaded = load_program(io.BytesIO(saved(Program(Contents(manifest, members, other._contents.weights), target=1))))
    assert loaded(torch.ones(2, 3), 3)["n"] == (2, 3)
    with pytest.raises(ValueError, match="copy the file"):
        loaded.save(io.BytesIO())
