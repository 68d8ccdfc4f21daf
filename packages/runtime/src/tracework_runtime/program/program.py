"""Program: functions compiled as a whole, that run without their source, a compiler or a capture.

Contents are a manifest (data), members (bytes of artifacts and binaries) and weights. They make a Program, whether they were just compiled or
read from a file. The manifest has `parameters` of the function, `names` and `aliases` of weights, and `targets`: for each kind of machine,
`machine` (target.py), the `folder` of its members, and `entries`, one for each way in which the function was compiled.

An entry: `artifact`, the number of its artifact; `inputs`, where each input of the graph is read; `arguments`, `symbols`, `conditions`, `same`,
`places`, `state` and `devices`, which checks.py reads; `written`, slots of inputs and how many versions a call adds; `versions` of outputs;
`outputs`, how what the program gives is made from what the graph gives; `result`, the tree of the call's result; `cudagraphs`, as the option.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime.artifact import Artifact
from tracework_runtime.build.binaries import Binaries
from tracework_runtime.cache.seal import key_bytes
from tracework_runtime.cudagraph import cudagraph, recorded_where_it_pays
from tracework_runtime.errors import ArtifactError, InputError, LoadError, ProgramFileError
from tracework_runtime.load import load
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions
from tracework_runtime.program import weights as weight_files
from tracework_runtime.program.archive import Archive, File, digest_of, write
from tracework_runtime.program.checks import ArgumentCheck, signature_of
from tracework_runtime.program.target import misfit
from tracework_runtime.program.values import Make, constant_of, getter, maker

__all__ = ["Contents", "Program", "load_program"]

WEIGHTS = "weights.bin"
_PLACES = ("inside", "beside", "left out")


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a program is made of. members: below a target's folder "artifacts/N.twa", and "binaries/..." as Binaries.members() names them; those
    of other targets need not be there."""

    manifest: Mapping[str, Any]
    members: Mapping[str, bytes]
    weights: Mapping[str, torch.Tensor]


class Program:
    """A compiled function: call it with the function's arguments. Raises InputError for those that it was not compiled for.

    Gradients are not computed: a call is as under torch.no_grad(). Weights are its own, or those of a module that it was loaded with.
    """

    def __init__(self, contents: Contents, options: RuntimeOptions = DEFAULT_OPTIONS, target: int = 0) -> None:
        """target: the one that fits this machine. Raises ProgramFileError for contents that make no program, LoadError for binaries or
        operators that are not there."""
        self._contents = contents
        manifest = contents.manifest
        self._weights = dict(contents.weights)
        try:
            self._signature = signature_of(manifest["parameters"])
            chosen = manifest["targets"][target]
            members = _below(contents.members, chosen["folder"])
            binaries = Binaries.from_members(_below(members, "binaries/"))
            self._entries = [self._entry(entry, options, members, binaries) for entry in chosen["entries"]]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if isinstance(error, ProgramFileError):
                raise
            raise ProgramFileError(
                f"a program's manifest cannot be read: {error!r}", advice="make the file again with this version"
            ) from error

    @classmethod
    def fitting(cls, contents: Contents, options: RuntimeOptions = DEFAULT_OPTIONS) -> Program:
        """Of the first target that fits this machine; where none does, it can be saved, and a call of it raises InputError."""
        targets = contents.manifest["targets"]
        chosen = next((number for number, target in enumerate(targets) if misfit(target["machine"]) is None), None)
        if chosen is not None:
            return cls(contents, options, chosen)
        program = cls.__new__(cls)
        program._contents, program._weights, program._entries = contents, dict(contents.weights), []
        program._signature = signature_of(contents.manifest["parameters"])
        return program

    @property
    def __signature__(self) -> inspect.Signature:
        return self._signature

    def __repr__(self) -> str:
        return f"<Program {self._contents.manifest['name']}{self._signature}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        failures = []
        for entry in self._entries:
            try:
                given, named = entry.check.as_compiled(bound.arguments)
                values = entry.check(given, named)
            except InputError as error:
                failures.append(error)
                continue
            return entry.run(given, named, values)
        if not failures:
            raise InputError(
                "the program was made for other machines than this one", advice="save it, and load it on such a machine"
            )
        if len(failures) == 1:
            raise failures[0]
        text = "\n".join(f"  {number}: {error.message}" for number, error in enumerate(failures))
        raise InputError(f"no entry of the program fits the call:\n{text}", advice=failures[0].advice)

    # weights

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights by their names in the module that was compiled, those under several names under each."""
        return {**self._weights, **{name: self._weights[of] for name, of in self._contents.manifest["aliases"].items()}}

    def load_state_dict(self, state: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Copies other values into the weights. Raises InputError for missing or unknown names and for other sizes or dtypes; nothing is
        copied then."""
        known = {*self._weights, *self._contents.manifest["aliases"], *self._contents.manifest["names"]}
        missing, unknown = self._weights.keys() - state.keys(), state.keys() - known
        if strict and (missing or unknown):
            texts = [
                f"{what} {', '.join(sorted(names))}" for what, names in (("missing", missing), ("unknown", unknown)) if names
            ]
            raise InputError(
                f"load_state_dict(): {'; '.join(texts)}", advice="give the state_dict() of such a module, or strict=False"
            )
        pairs = [(name, weight, state[name]) for name, weight in self._weights.items() if name in state]
        for name, weight, other in pairs:
            if weight.shape != other.shape or weight.dtype != other.dtype:
                raise InputError(
                    f"load_state_dict(): {name}: expected {_facts(weight)}, got {_facts(other)}",
                    advice="give weights of the same kind",
                )
        with torch.no_grad():
            for _, weight, other in pairs:
                weight.copy_(other)

    def _take_from(self, module: torch.nn.Module) -> None:
        """The module's own tensors are the weights from now on."""
        held = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
        for name, facts in self._contents.manifest["weights"]["tensors"].items():
            given = held.get(name)
            if given is None:
                raise InputError(
                    f"load(module=): the module has no {name}", advice="give a module of the class that was compiled"
                )
            storage = self._contents.manifest["weights"]["storages"][facts["storage"]]
            wanted = (facts["dtype"], tuple(facts["sizes"]), tuple(facts["strides"]), storage["device"])
            found = (str(given.dtype).removeprefix("torch."), tuple(given.shape), given.stride(), str(given.device))
            if wanted != found:
                raise InputError(
                    f"load(module=): {name}: expected {_text(wanted)}, got {_text(found)}",
                    advice="give a module of the same kind",
                )
            self._weights[name] = given.detach()

    # files

    def save(self, file: File, *, weights: str = "inside", key: bytes | str | None = None) -> None:
        """Writes the program to a file, which load_program() reads. The file is a program: whoever loads it runs it.

        weights: "inside" of the file, "beside" it, in one named after it with `.weights` behind, or "left out", so that it has to be loaded
        with a module. key: signs the file; whoever loads it with the same key knows that it was written by someone who has it.
        """
        if weights not in _PLACES:
            raise ValueError(f"weights= is one of {', '.join(map(repr, _PLACES))}, not {weights!r}")
        targets = self._contents.manifest["targets"]
        missing = [t["folder"] for t in targets if not _below(self._contents.members, t["folder"])]
        if missing:
            raise ValueError("it was read from a file with other targets, of which this process has none: copy the file")
        facts, content = weight_files.described(self._weights)
        members: dict[str, bytes | weight_files.Content] = dict(self._contents.members)
        if weights == "inside":
            members[WEIGHTS] = content
        elif weights == "beside":
            if not isinstance(file, (str, os.PathLike)):
                raise ValueError("weights='beside' takes the name of a file, which the weights' is made from")
            write(_beside(file), {"program": self._contents.manifest["name"]}, {WEIGHTS: content}, _key(key))
        kept = {**facts, "where": weights, "sha256": digest_of(content)}
        write(file, {**self._contents.manifest, "weights": kept}, members, _key(key))

    def save_compiled_function(self, path: str | os.PathLike[str], external_data: Any = None) -> None:
        """save() under the name that it has in torch.compile."""
        self.save(path)

    # one entry

    def _entry(
        self, entry: Mapping[str, Any], options: RuntimeOptions, members: Mapping[str, bytes], binaries: Binaries
    ) -> _Entry:
        try:
            artifact = Artifact.from_bytes(members[f"artifacts/{entry['artifact']}.twa"])
        except ArtifactError as error:
            raise ProgramFileError(f"an artifact of the program cannot be read: {error.message}", advice=error.advice) from error
        _demand_operators(artifact)
        compiled: Any = load(artifact, options, check_inputs=False, binaries=binaries)
        if entry["cudagraphs"] is not False:
            compiled = cudagraph(compiled, options) if entry["cudagraphs"] else recorded_where_it_pays(compiled, options)
        return _Entry(entry, ArgumentCheck(entry, self._signature), compiled, self._weights)


def _beside(file: str | os.PathLike[str]) -> Path:
    return Path(file).with_name(Path(file).name + ".weights")


def _key(key: bytes | str | None) -> bytes | None:
    """Raises CacheUnsafe for an empty one."""
    return None if key is None else key_bytes(key)


def _facts(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _text(facts: tuple[Any, ...]) -> str:
    dtype, sizes, strides, device = facts
    return f"{dtype}{list(sizes)} with strides {strides} on {device}"


def _below(members: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(folder): data for name, data in members.items() if name.startswith(folder)}


def _demand_operators(artifact: Artifact) -> None:
    """Raises LoadError for operators that a library has to register first."""
    for name in artifact.externs:
        namespace, _, operator = name.partition("::")  # without an operator, it is a call of the runtime's own
        if operator and namespace not in ("aten", "prims", "python") and not hasattr(getattr(torch.ops, namespace), operator):
            raise LoadError(
                f"the program calls the operator {name}, which is not registered here",
                advice=f"import the package that registers {namespace}:: before load()",
            )


class _Entry:
    """One way in which the function was compiled, ready to run. `weights` is looked at in each call: they may be exchanged."""

    def __init__(
        self,
        entry: Mapping[str, Any],
        check: ArgumentCheck,
        compiled: Callable[[list[Any]], Any],
        weights: Mapping[str, torch.Tensor],
    ) -> None:
        self.check = check
        self._call = compiled
        self._reads = [_reader(how, weights) for how in entry["inputs"]]
        self._written = {int(slot): count for slot, count in entry["written"]}
        self._versions = [(slot, count) for slot, count in entry["versions"]]
        self._outputs = [_output(data) for data in entry["outputs"]]
        self._result = maker(entry["result"], _result_leaf)
        self._tensors = [n for n, how in enumerate(entry["inputs"]) if how[0] in ("argument", "weight")]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], values: Mapping[str, int]) -> Any:
        """The function's result."""
        given = {"args": args, "kwargs": kwargs, "symbols": values}
        inputs = [read(given) for read in self._reads]
        if self._written:
            self._demand_apart(inputs)
        with torch.no_grad():
            graph = self._graph(inputs)
            made: list[Any] = []
            for output in self._outputs:
                made.append(output(inputs, graph, made))
        return self._result({**given, "inputs": inputs, "outputs": made})

    def _graph(self, inputs: list[Any]) -> Any:
        """What the graph gives; autograd counts the writes that the program has made."""
        written = [inputs[slot] for slot in self._written if not inputs[slot].is_inference()]
        before = tuple(tensor._version for tensor in written)
        graph = self._call(list(inputs))
        if written:
            _torch.set_versions(tuple(written), before)
            for slot, count in self._written.items():
                for _ in range(count if not inputs[slot].is_inference() else 0):
                    torch.autograd.graph.increment_version(inputs[slot])
        counted = [(graph[slot], count) for slot, count in self._versions if not graph[slot].is_inference()]
        if counted:
            _torch.set_versions(tuple(t for t, _ in counted), tuple(count for _, count in counted))
        return graph

    def _demand_apart(self, inputs: Sequence[Any]) -> None:
        """Raises InputError where an input that is written to shares memory with another."""
        spans = [(*_span(inputs[n]), n) for n in self._tensors if isinstance(inputs[n], torch.Tensor) and inputs[n].numel()]
        end_of_any = end_of_written = 0
        for start, end, place in sorted(spans):
            is_written = place in self._written
            if start < end_of_written or (is_written and start < end_of_any):
                raise InputError(
                    "two tensors of the call share memory, and one of them is written to", advice="pass clones of them, or of one"
                )
            end_of_any = max(end_of_any, end)
            end_of_written = max(end_of_written, end) if is_written else end_of_written


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
    return start, start + reach * tensor.element_size()


def _reader(how: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> Make:
    match how:
        case ["argument", path]:
            return getter(path)
        case ["weight", name]:
            return lambda given: weights[name]
        case ["symbol", name]:
            return lambda given: given["symbols"][name]
        case _:
            raise ValueError(f"an input that is read as {how}")


def _result_leaf(data: Any) -> Make:
    match data:
        case ["input" | "output" as kind, place]:
            return lambda scope: scope[f"{kind}s"][place]
        case ["argument", path]:
            return getter(path)
        case _:
            raise ValueError(f"a part of the result that is made as {data}")


Output = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]
"""(the graph's inputs, what the graph gave, the outputs so far) -> an output of the program."""


def _output(data: Mapping[str, Any]) -> Output:
    slot, kind = data["slot"], data["kind"]
    steps = [_step(step) for step in data["steps"]]

    def view(base: Any, graph: Sequence[Any]) -> Any:
        for step in steps:
            base = step(base, graph)
        return base

    match kind:
        case "fresh" | "size":
            return lambda inputs, graph, made: graph[slot]
        case "alias":
            return lambda inputs, graph, made: torch.ops.aten.alias.default(graph[slot])
        case "input":
            return lambda inputs, graph, made: inputs[slot]
        case "output":
            return lambda inputs, graph, made: made[slot]
        case "constant":
            value = constant_of(data["constant"])
            return lambda inputs, graph, made: value
        case "input_view":
            return lambda inputs, graph, made: view(inputs[slot], graph)
        case "base_view":
            return lambda inputs, graph, made: view(graph[slot], graph)
        case "output_view":
            return lambda inputs, graph, made: view(made[slot], graph)
        case _:
            raise ValueError(f"an output of kind {kind}")


def _step(data: Mapping[str, Any]) -> Callable[[Any, Sequence[Any]], Any]:
    """One view; its arguments are trees whose leaves may be sizes that the graph gives."""
    namespace, packet, overload = data["operator"].split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    args = [maker(arg, _graph_size) for arg in data["args"]]
    kwargs = {name: maker(arg, _graph_size) for name, arg in data["kwargs"].items()}
    index = data["index"]

    def run(base: Any, graph: Sequence[Any]) -> Any:
        found = target(base, *[arg(graph) for arg in args], **{name: arg(graph) for name, arg in kwargs.items()})
        return found if index is None else found[index]

    return run


def _graph_size(data: Any) -> Make:
    match data:
        case ["output", place]:
            return lambda graph: graph[place]
        case _:
            raise ValueError(f"an argument of a view that is made as {data}")


def load_program(
    file: File,
    module: torch.nn.Module | None = None,
    *,
    key: bytes | str | None = None,
    options: RuntimeOptions = DEFAULT_OPTIONS,
) -> Program:
    """The program in a file. It will run with your rights: load only what you trust.

    module: its tensors are the weights, and stay its own; those of the file are not read. key: the one that the file has to be signed with.

    Raises ProgramFileError for a file that is damaged, of another kind or version, signed otherwise, or made for another machine.
    """
    archive = Archive(file, _key(key))
    try:
        manifest = archive.manifest
        try:
            misfits = [misfit(target["machine"]) for target in manifest["targets"]]
            chosen = next((number for number, found in enumerate(misfits) if found is None), None)
            where, kept = manifest["weights"]["where"], manifest["weights"]
            folder = "" if chosen is None else manifest["targets"][chosen]["folder"]
        except (KeyError, TypeError) as error:
            raise archive.refused(f"its manifest is damaged ({error!r})", "make the file again with this version") from error
        if chosen is None:
            raise archive.refused(
                "; ".join(dict.fromkeys(found[0] for found in misfits if found)) or "it has no target",
                next((found[1] for found in misfits if found), "make the file again"),
            )
        members = {name: archive.member(name) for name in manifest["members"] if name.startswith(folder) and name != WEIGHTS}
        weights: dict[str, torch.Tensor] = {}
        if module is None:
            weights = _read_weights(archive, file, where, kept, key)
    finally:
        archive.close()
    program = Program(Contents(manifest, members, weights), options, chosen)
    if module is not None:
        program._take_from(module)
    return program


def _read_weights(
    archive: Archive, file: File, where: str, kept: Mapping[str, Any], key: bytes | str | None
) -> dict[str, torch.Tensor]:
    if not kept["tensors"]:
        return {}
    if where == "inside":
        return weight_files.placed(kept, lambda parts: archive.read_into(WEIGHTS, parts))
    if where == "left out" or not isinstance(file, (str, os.PathLike)):
        raise archive.refused("its weights were left out", "load it with a module that has them: load(file, module=...)")
    try:
        other = Archive(_beside(file), _key(key))
    except OSError as error:
        raise archive.refused(f"its weights lie beside it, and are not there ({error})", "copy both files") from error
    try:
        if other.manifest["members"].get(WEIGHTS, {}).get("sha256") != kept["sha256"]:
            raise archive.refused("the weights beside it are not those that it was saved with", "copy both files")
        return weight_files.placed(kept, lambda parts: other.read_into(WEIGHTS, parts))
    finally:
        other.close()
