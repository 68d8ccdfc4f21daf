"""Case: a graph that fails, or may fail, in one file: its program as text, its inputs, options, versions and the error, without pickles.

A case is a zip archive: case.json, program.txt, inputs.safetensors (the memory of the inputs) and, for reading, the texts of later stages.
The program is run by whoever examines the case, so examine only those that you trust.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import platform
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from tracework_aotautograd import functional_graph, functional_module
from tracework_capture.graph.text import parse_captured, print_captured
from tracework_primops import PrimError, PrimGraph, SizeSpec, TensorSpec, parse_graph

from . import _torch
from ._version import __version__
from .errors import CompileError, InvalidArgument, TraceworkError
from .options import OPTION_NAMES, Options

FORMAT = 1
LEVELS = ("captured", "functional", "prim")
"""What a program is a graph of: torch's functions, ATen's operators after autograd, prims."""
SUFFIX = ".case"
MOST_BYTES = 1 << 26
"""Memory of inputs that a case holds; larger inputs are described, and made anew when it is loaded."""
KEPT = 16
"""Cases that stay in the temporary folder; older ones are deleted as others come."""


class CaseError(TraceworkError):
    """A case cannot be written, read or run; says why."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph with everything that it takes to compile and run it again.

    Attributes:
        level: what `program` is a graph of, one of LEVELS.
        program: its text, which `graph()` reads.
        inputs: one for each placeholder.
        options: those of compile() that are not as they are by default, as far as they are plain data.
        stage, error: where it failed and how; empty where nothing is known to have failed.
        place: "file:line in function" of the user's function, as far as it is known.
        modes: what was on: "grad", and "autocast" with the dtype of each type of device; `entered()` turns it on.
        texts: what later stages made of it, by stage.
        versions: of Python, torch and tracework.
    """

    level: str
    program: str
    inputs: tuple[Any, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stage: str = ""
    error: str = ""
    place: str = ""
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modes: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _modes())
    versions: Mapping[str, str] = dataclasses.field(default_factory=lambda: _versions())

    @classmethod
    def of_captured(cls, gm: torch.fx.GraphModule, inputs: Sequence[Any], options: Options | None = None, **facts: Any) -> Case:
        """Of a captured graph and what it is called with. Raises CaseError where the graph has no text or an input cannot be kept."""
        try:
            program = print_captured(gm.graph)
        except PrimError as error:
            raise CaseError(f"the captured graph cannot be written down: {error}") from error
        return cls("captured", program, tuple(inputs), plain_options(options), **facts)

    @classmethod
    def of_functional(cls, gm: torch.fx.GraphModule, spec: Any, options: Options | None = None, **facts: Any) -> Case:
        """Of a functional graph, with inputs that are made of its specs. Raises CaseError."""
        try:
            graph = functional_graph(gm, spec)
        except PrimError as error:
            raise CaseError(f"the functional graph cannot be written down: {error}") from error
        return cls("functional", graph.text(), inputs_of(graph), plain_options(options), **facts)

    @classmethod
    def of_prims(cls, graph: PrimGraph | str, inputs: Sequence[Any] | None = None, **facts: Any) -> Case:
        """Of a graph of prims or its text; inputs are made of its specs where none are given."""
        read = parse_graph(graph) if isinstance(graph, str) else graph
        return cls("prim", read.text(), inputs_of(read) if inputs is None else tuple(inputs), **facts)

    def graph(self) -> torch.fx.GraphModule | PrimGraph:
        """The program: a GraphModule of a captured graph, else a PrimGraph (whose calls are ATen's at level "functional")."""
        return parse_captured(self.program) if self.level == "captured" else parse_graph(self.program)

    @functools.cached_property
    def chosen(self) -> Options:
        """The options as compile() has them."""
        values: dict[str, Any] = dict(self.options)
        return Options(**values)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The modes in which the graph was captured."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.modes["grad"]))
            for device, dtype in self.modes["autocast"].items():
                stack.enter_context(torch.autocast(device, dtype=getattr(torch, dtype)))
            yield

    def inner(self) -> Case | None:
        """The functional graph that failed, with inputs that are made of its specs, where this case has it beside a larger one."""
        text = self.texts.get("functional") if self.level == "captured" else None
        return (
            None
            if text is None
            else self.replace(level="functional", program=text, inputs=inputs_of(parse_graph(text)), texts={})
        )

    def replace(self, **changes: Any) -> Case:
        """The same with fields changed."""
        return dataclasses.replace(self, **changes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it, whole or not at all, and gives the path. Raises CaseError for inputs that cannot be kept."""
        target = Path(path)
        described, memory = _described(self.inputs)
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("program", "inputs", "texts")}
        document = {"format": FORMAT, **{name: dict(v) if isinstance(v, Mapping) else v for name, v in facts.items()}}
        part = target.with_name(f".{target.name}.{os.getpid()}")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("case.json", json.dumps({**document, "inputs": described}, indent=1))
            archive.writestr("program.txt", self.program)
            archive.writestr("inputs.safetensors", _safetensors(memory))
            for name, text in self.texts.items():
                archive.writestr(f"texts/{name}.txt", text)
        part.replace(target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Case:
        """The case in a file. Raises CaseError for a file that is none, or of a newer format."""
        try:
            with zipfile.ZipFile(path) as archive:
                document = json.loads(archive.read("case.json"))
                memory = _memory(archive.read("inputs.safetensors"))
                program = archive.read("program.txt").decode()
                names = [name for name in archive.namelist() if name.startswith("texts/")]
                texts = {name[len("texts/") : -len(".txt")]: archive.read(name).decode() for name in names}
        except (OSError, zipfile.BadZipFile, KeyError, ValueError, struct.error) as error:
            raise CaseError(
                f"{path} is no case: {error}. Cases are written by dump_dir, CompileError and tracework.case()."
            ) from error
        if document.pop("format", None) != FORMAT:
            raise CaseError(f"{path} was written by another version of tracework: {document.get('versions')}.")
        inputs = _made(document.pop("inputs"), memory)
        return cls(program=program, inputs=inputs, texts=texts, **document)

    def __str__(self) -> str:
        calls = sum("(" in line.partition(" = ")[2] for line in self.program.splitlines())
        failed = f"; {self.stage} failed: {self.error.splitlines()[0]}" if self.error else ""
        return f"{self.level} graph{f' of {self.place}' if self.place else ''}, {calls} operators{failed}"


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": _torch.release(), "tracework": __version__}


def _modes() -> dict[str, Any]:
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    autocast = {device: str(torch.get_autocast_dtype(device)).removeprefix("torch.") for device in on}
    return {"grad": torch.is_grad_enabled(), "autocast": autocast}


def plain_options(options: Options | None) -> dict[str, Any]:
    """Those that differ from what they are by default, and are plain data: a pass, a policy or a filter of the user's own is none; folders
    are of one machine."""
    chosen = {} if options is None else {n: getattr(options, n) for n, row in OPTION_NAMES.items() if row.changes_code}
    plain = (bool, int, float, str, type(None))
    return {n: v for n, v in chosen.items() if v != OPTION_NAMES[n].default and isinstance(v, plain) and n != "cxx"}


# where failures are written ---------------------------------------------------------------------------------------------------


def keep(case: Callable[[], Case], error: CompileError, folder: str) -> None:
    """Writes the case of an error and names it there. Nothing that goes wrong here takes the error's place."""
    try:
        written = dataclasses.replace(case(), stage=error.stage, error=f"{type(error.__cause__).__name__}: {error.__cause__}")
        if (
            error.case is not None
        ):  # the graph that failed, which the whole one may not lead to again, as sizes of a text are numbers
            inner = Case.load(error.case)
            written = written.replace(texts={inner.level: inner.program})
        error.written_to(written.save(error.case or _new(folder)))
    except Exception as reason:  # whatever it is: the program gets its CompileError, and one without a case says why
        error.add_note(f"no case was written: {reason}")


_numbers = itertools.count()


def _new(folder: str) -> Path:
    """A path for a new case, in a folder that is given or in the temporary one, where older ones go."""
    home = Path(folder) if folder else temporary()
    home.mkdir(parents=True, exist_ok=True)
    if not folder:
        for old in sorted(home.glob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime)[: 1 - KEPT or None]:
            old.unlink(missing_ok=True)
    return home / f"failed-{os.getpid()}-{next(_numbers)}{SUFFIX}"


def temporary() -> Path:
    """The user's own folder for cases, which nobody else can read or write."""
    home = Path(tempfile.gettempdir(), f"tracework-cases-{os.getuid() if hasattr(os, 'getuid') else os.getlogin()}")
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if home.is_symlink() or (hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077)):
        return Path(tempfile.mkdtemp(prefix="tracework-cases-"))
    return home


# inputs ---------------------------------------------------------------------------------------------------------------------------


def inputs_of(graph: PrimGraph) -> tuple[Any, ...]:
    """Inputs that fit the specs of a graph: floats of a normal distribution, zeros for others, the hints of sizes."""
    generator = torch.Generator().manual_seed(0)
    return tuple(_value(given.spec, graph, generator) for given in graph.inputs)


def _value(spec: Any, graph: PrimGraph, generator: torch.Generator) -> Any:
    def number(size: Any) -> int:
        if isinstance(size, int):
            return size
        if graph.symbols is not None and graph.symbols.has_hint(size):
            return graph.symbols.hint(size)
        return int(size.evaluate({symbol: max(8, symbol.lower or 0) for symbol in size.free_symbols}))

    if isinstance(spec, SizeSpec):
        return number(spec.expr)
    if not isinstance(spec, TensorSpec):
        return None
    sizes, strides, offset = [number(s) for s in spec.sizes], [number(s) for s in spec.strides], number(spec.offset)
    extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    memory = _filled((max(extent, 0),), spec.dtype, 0.0, 1.0, generator).to(spec.device)
    return memory.as_strided(sizes, strides, offset)


def _filled(sizes: Sequence[int], dtype: torch.dtype, mean: float, deviation: float, generator: torch.Generator) -> torch.Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros(sizes, dtype=dtype)
    return (torch.randn(sizes, generator=generator) * deviation + mean).to(dtype)


def _described(inputs: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Inputs as plain data, and the memory that they lie in: inputs that share some share it again when they are loaded."""
    rows: list[dict[str, Any]] = []
    memory: dict[str, torch.Tensor] = {}
    names: dict[int, str] = {}
    room = MOST_BYTES
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, (int, float, bool, str, type(None))):
                raise CaseError(f"an input is a {type(value).__name__}, which a case does not keep")
            rows.append({"kind": "value", "value": value})
            continue
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise CaseError(
                f"an input is a tensor of type {type(value).__name__} and layout {value.layout}, which a case does not keep"
            )
        plain = value.detach().resolve_conj().resolve_neg()
        row = {
            "kind": "tensor",
            "dtype": str(plain.dtype).removeprefix("torch."),
            "device": str(plain.device),
            "sizes": list(plain.shape),
            "strides": list(plain.stride()),
            "offset": plain.storage_offset(),
            "requires_grad": value.requires_grad,
        }
        storage = plain.untyped_storage()
        name = names.get(storage.data_ptr()) if storage.nbytes() else None
        if name is None and storage.nbytes() <= room:
            name = names[storage.data_ptr()] = f"memory{len(memory)}"
            room -= storage.nbytes()
            memory[name] = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage).cpu()
        rows.append({**row, "memory": name} if name is not None else {**row, **_statistics(plain)})
    return rows, memory


def _statistics(value: torch.Tensor) -> dict[str, float]:
    if not value.dtype.is_floating_point:
        return {"mean": 0.0, "deviation": 1.0}
    deviation, mean = torch.std_mean(value.double())
    return {"mean": mean.item(), "deviation": deviation.item()}


def _made(rows: Iterable[Mapping[str, Any]], memory: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    placed: dict[tuple[str, str], torch.Tensor] = {}
    found: list[Any] = []
    for row in rows:
        if row["kind"] == "value":
            found.append(row["value"])
            continue
        dtype, device = getattr(torch, row["dtype"]), row["device"]
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise CaseError(
                f"the case has inputs on {device}, and there is no CUDA device here. Examine it on a machine with one."
            )
        sizes, strides, offset = row["sizes"], row["strides"], row["offset"]
        name = row.get("memory")
        if name is not None:
            key = name, device
            if key not in placed:
                placed[key] = memory[name].to(device)
            made = torch.empty(0, dtype=dtype, device=device).set_(placed[key].untyped_storage(), offset, sizes, strides)
        else:
            extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            flat = _filled((max(extent, 0),), dtype, row["mean"], row["deviation"], generator)
            made = flat.to(device).as_strided(sizes, strides, offset)
        found.append(made.requires_grad_() if row["requires_grad"] else made)
    return tuple(found)


def _safetensors(memory: Mapping[str, torch.Tensor]) -> bytes:
    """In the format of safetensors, each as bytes."""
    header, offset = {}, 0
    for name, data in memory.items():
        header[name] = {"dtype": "U8", "shape": [data.numel()], "data_offsets": [offset, offset + data.numel()]}
        offset += data.numel()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data.numpy().tobytes() for data in memory.values())


def _memory(blob: bytes) -> dict[str, torch.Tensor]:
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + length])
    found = {}
    for name, row in header.items():
        begin, end = (8 + length + place for place in row["data_offsets"])
        if row["dtype"] != "U8" or not 0 <= begin <= end <= len(blob):
            raise ValueError(f"{name} is not in the file")
        found[name] = (
            torch.frombuffer(bytearray(blob[begin:end]), dtype=torch.uint8) if end > begin else torch.empty(0, dtype=torch.uint8)
        )
    return found


def load(given: Case | str | os.PathLike[str]) -> Case:
    """A case, or the one in a file. Raises CaseError, InvalidArgument for what is neither."""
    if isinstance(given, Case):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Case.load(given)
    raise InvalidArgument(f"a case or the path of one is needed, not {given!r}.")


__all__ = ["Case", "CaseError", "functional_module", "inputs_of", "keep", "load", "plain_options", "temporary"]
