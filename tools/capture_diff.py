"""What capture makes of a fixed set of programs, one text a program, to be compared from one state of its sources to the next.

    python tools/run_in_tree.py python tools/capture_diff.py OUT [--only language|breaks|zoo] [--name TEXT] [--zoo] [--against FOLDER]

A text has, in the order in which they come: attempts (each start of a capture), why they stopped, graphs, and entries with their guards and the
code that replaces the frame; at its end what explain() says. Addresses and counters are numbered as they appear, paths are relative, and of
capture's own files only the package's name is left, so that files can move. Each program runs in a process of its own, and none depends on
those before it. With --against, prints a unified diff and exits with 1 where a text differs.
"""

from __future__ import annotations

import argparse
import difflib
import dis
import importlib
import inspect
import itertools
import logging
import multiprocessing
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import tracework_capture
import tracework_primops
from tracework_capture.hook import cache
from tracework_capture.uncompiled import collected

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "packages" / "capture" / "tests" / "unit"
SECONDS = 300
Run = Callable[[Callable[..., Any]], None]
"""A program: it is given what compiles a function, with optimize()'s options, and makes its calls."""
QUICK = (
    *(
        f"awkward/{name}=inference"
        for name in ("until_converged", "filtered_boxes", "lbfgs_step", "rollout", "gan_step", "detector")
    ),
    *(
        "timm/resnet18=inference",
        "timm/swin_tiny_patch4_window7_224=inference",
        "GPT2LMHeadModel=training",
        "BertForMaskedLM=inference",
    ),
    *("T5ForConditionalGeneration/generate=generate", "Phi3ForCausalLM/generate=generate", "Gemma3ForCausalLM=inference"),
    *("DINOv3ViTModel=inference", "DebertaForMaskedLM=inference", "RwkvForCausalLM=inference", "Wav2Vec2ForCTC=inference"),
)
"""Jobs of the zoo that are taken without --zoo: each kind of call, and of a break, a loop, a retry, a size that changes."""
PATHS = (
    (re.compile(r"[^\s\"'(<]*/src/tracework_capture[/\w]*\.py(:\d+)?"), "tracework_capture"),
    (re.compile(r"\btracework_capture(\.\w+)+\.(?=\w)"), "tracework_capture."),
    (re.compile(re.escape(f"{ROOT}{os.sep}")), ""),
    (re.compile(r"[^\s\"'(<]*/(?=(site-packages|lib/python3\.\d+)/)"), ""),
)
OWN = str(Path(tracework_capture.__file__).parent)
JUMPS = {*dis.hasjrel, *dis.hasjabs}
NUMBERED = re.compile(r"(?<![0-9A-Za-z])0x[0-9a-f]{6,}\b|\b1[34]\d{13}\b|(?<=<eval_with_key>\.)\d+")


def language() -> Iterator[tuple[str, Run]]:
    """The cases of unit/language."""
    sys.path[:0] = [str(TESTS / "language"), str(TESTS / "interp")]
    for file in sorted((TESTS / "language").glob("*_cases.py")):
        importlib.import_module(file.stem)
    for name, (function, _) in sys.modules["cases"].CASES.items():
        yield name, lambda compiled, function=function: repeat(compiled(function))
    for name, case in sys.modules["one_graph_cases"].CASES.items():
        yield f"one_graph: {name}", lambda compiled, case=case: call_case(compiled, case)


def repeat(compiled: Callable[..., Any]) -> None:
    """As the tests of the cases do; then with another size."""
    for rows in (2, 2, 4):
        torch.manual_seed(0)
        compiled(torch.randn(rows, 3))


def call_case(compiled: Callable[..., Any], case: Any) -> None:
    """The calls of a row of one_graph_cases."""
    program = compiled(case.program, unbacked=True if case.fullgraph else None, fullgraph=case.fullgraph)
    for args in case.calls:
        program(*args)


def breaks() -> Iterator[tuple[str, Run]]:
    """A program for each reason of a break, which breaks, and is refused."""
    sys.path.insert(0, str(TESTS / "controls"))
    table = importlib.import_module("break_programs")
    for name, function in table.PROGRAMS.items():
        yield name, lambda compiled, function=function: compiled(function)(table.X)
        yield f"{name} refused", lambda compiled, function=function: compiled(function, fullgraph=True)(table.X)


def zoo(all_of_it: bool) -> Iterator[tuple[str, Run]]:
    """The models of integration_tests/zoo, called as zoo.breaks calls them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "integration_tests")]
    counted = importlib.import_module("zoo.breaks")
    for library in counted.LIBRARIES["ours"]:
        importlib.import_module(library)
    for job in counted.jobs("") if all_of_it else QUICK:
        yield job, lambda compiled, job=job: run_job(compiled, counted.calls_of(*job.rpartition("=")[::2]))


def run_job(compiled: Callable[..., Any], calls: Callable[..., Iterator[Any]]) -> None:
    """All calls of a record of the zoo."""
    for _ in calls(lambda model: compiled(model, unbacked=None)):
        pass


class Recorder(logging.Handler):
    """Watches capture and keeps what it does, as lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.callbacks: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        """A line of capture's logs: breaks, frames that run plainly, recompiles."""
        ids = [each.reason_id for each in record.args or () if hasattr(each, "reason_id")]
        self.lines.append(f"{record.name.removeprefix('tracework.')} {' '.join(ids)}: {record.getMessage()}")

    def watch(self) -> None:
        """Starts, for the rest of the process; each attempt has one FakeMode, and what replaces a frame goes through make_entry."""
        logger = logging.getLogger("tracework")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        begin, make = tracework_primops.FakeMode.__init__, cache.make_entry
        signature = inspect.signature(make)

        def attempt(mode: Any, *args: Any, **kwargs: Any) -> None:
            self.lines.append("attempt")
            begin(mode, *args, **kwargs)

        def make_entry(*args: Any, **kwargs: Any) -> Any:
            self.entry(**signature.bind(*args, **kwargs).arguments)
            return make(*args, **kwargs)

        tracework_primops.FakeMode.__init__ = attempt  # type: ignore[method-assign]
        cache.make_entry = make_entry

    def compiled(self, function: Any, **options: Any) -> Any:
        """The function compiled by a backend that gives graphs back."""
        found = tracework_capture.optimize(lambda gm, inputs: gm.forward, observe=self.graph, **options)(function)
        self.callbacks.append(found.callback)
        return found

    def graph(self, stage: str, captured: Any) -> None:
        """A captured graph and the graphs in it."""
        self.lines.append(f"graph of {captured.origin}, {getattr(captured.stop, 'reason_id', 'returned')}")
        self.lines += [f"  input {each.name}: {each.role}{' static' * each.is_static} {each.source}" for each in captured.inputs]
        for name, part in captured.graph.named_modules():
            if hasattr(part, "graph"):
                self.lines += [f"  {name} {line}" for line in str(part.graph).splitlines() if line]
        for node in captured.graph.graph.find_nodes(op="placeholder"):
            self.lines.append(f"  {node.name} is {described(node.meta.get('example_value'))}")

    def entry(self, code: types.CodeType, guards: Any, collect: Any, table: Any, replacement: types.CodeType, **_: Any) -> None:
        """What will be run for a frame, and when."""
        self.lines.append(f"entry of {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})")
        for each in guards:
            payload = shown(frozenset(each.payload) if each.kind == "SET_MEMBERS" else each.payload)
            self.lines.append(f"  guard {each.kind} {each.source} {payload}  # {each.origin}")
        self.lines += [f"  condition {each}" for each in getattr(table, "conditions", ())]
        self.lines += [f"  collects {each}" for each in collect]
        self.lines += listing(replacement, {id(code)})


def described(value: Any) -> str:
    """A tensor by its facts, anything else as it is shown."""
    if hasattr(value, "stride") and hasattr(value, "dtype"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {value.stride()} {value.requires_grad}"
    return f"{type(value).__name__} {shown(value)}"


def shown(value: Any) -> str:
    """One line for a value, the same in each process."""
    if type(value) in (set, frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(shown, value)))})"
    if type(value) in (tuple, list):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if type(value) in (types.CodeType, types.FunctionType, types.MethodType, types.BuiltinFunctionType):
        return f"<{type(value).__name__} {getattr(value, '__qualname__', None) or value.co_qualname}>"
    try:
        text = value.text() if type(value).__name__ == "TensorFacts" else repr(value)
    except Exception as error:  # the program's own
        text = f"{type(error).__name__}"
    return text if "\n" not in text else f"<{type(value).__qualname__}>"


def listing(code: types.CodeType, seen: set[int]) -> Iterator[str]:
    """The instructions of a code object and of those that it holds, jumps by labels, lines counted from its first."""
    seen.add(id(code))
    read = dis.Bytecode(
        code.replace(co_consts=(None,) * len(code.co_consts))
    )  # it asks constants for their texts, which may raise
    instructions, covered = list(read), read.exception_entries  # type: ignore[attr-defined]
    jumps = {each.argval for each in instructions if each.opcode in JUMPS}
    targets = sorted(jumps | {offset for each in covered for offset in (each.start, each.end, each.target)})
    labels, line = {offset: f"L{number}" for number, offset in enumerate(targets)}, None
    yield f"  code {code.co_qualname} flags {code.co_flags} stack {code.co_stacksize} {code.co_varnames} {code.co_freevars}"
    for each in instructions:
        now = each.positions.lineno if each.positions else None
        place = f"{f'+{now - code.co_firstlineno}' if now and now != line else '':5}{labels.get(each.offset, ''):4}"
        line = now
        constant = shown(code.co_consts[each.arg]) if each.opcode in dis.hasconst else ""
        argument = labels[each.argval] if each.opcode in JUMPS else constant or each.argrepr or each.arg
        yield f"    {place} {each.opname} {'' if argument is None else argument}".rstrip()
    for each in covered:
        end = labels.get(each.end, "end")
        yield f"    {labels[each.start]} to {end} handled at {labels[each.target]}, depth {each.depth}{' with lasti' * each.lasti}"
    for held in code.co_consts:
        inner = held.__code__ if type(held) is types.FunctionType else held
        if isinstance(inner, types.CodeType) and id(inner) not in seen and not inner.co_filename.startswith(OWN):
            yield from listing(inner, seen)


def normalised(text: str) -> str:
    """Paths relative, addresses and counters numbered."""
    for pattern, short in PATHS:
        text = pattern.sub(short, text)
    numbers: dict[str, str] = {}
    return NUMBERED.sub(lambda found: numbers.get(found[0]) or numbers.setdefault(found[0], f"@{len(numbers) + 1}"), text)


def record(run: Run, file: Path) -> None:
    """In the program's own process: runs it and writes its text."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    torch.set_num_threads(1)
    recorder = Recorder()
    recorder.watch()
    with collected() as uncompiled:
        try:
            run(recorder.compiled)
        except Exception as error:
            recorder.lines.append(f"raised {type(error).__name__}: {error}")
    for callback in recorder.callbacks:
        found = tracework_capture.Explanation(
            [], *map(list, (callback.breaks, callback.skipped, callback.recompiles)), uncompiled
        )
        recorder.lines.append(str(found))
    file.write_text(normalised("\n".join(recorder.lines) + "\n"))


def write(part: str, programs: Iterator[tuple[str, Run]], out: Path, name: str) -> list[Path]:
    """The files of a part, below out."""
    files = []
    fork = multiprocessing.get_context("fork")
    for program, run in programs:
        if name not in program:
            continue
        file = out / part / (re.sub(r"[^\w.=]+", "_", program) + ".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        child = fork.Process(target=record, args=(run, file))
        child.start()
        child.join(SECONDS)
        child.kill()
        if not file.exists():
            file.write_text(f"no result within {SECONDS} s, or the process died\n")
        files.append(file)
    return files


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=("language", "breaks", "zoo"))
    parser.add_argument("--name", default="", help="programs whose name contains this")
    parser.add_argument("--zoo", action="store_true", help="all models of the zoo, not only quick ones")
    parser.add_argument("--against", type=Path, help="a folder that this command has written before")
    given = parser.parse_args()
    parts = {"language": language(), "breaks": breaks(), "zoo": zoo(given.zoo)}
    files, different = [], 0
    for part in [given.only] if given.only else parts:
        files += write(part, parts[part], given.out, given.name)
    for file in files if given.against else ():
        before = given.against / file.relative_to(given.out)
        old = before.read_text().splitlines() if before.exists() else []
        lines = list(difflib.unified_diff(old, file.read_text().splitlines(), str(before), str(file), lineterm=""))
        different += bool(lines)
        print("\n".join(lines), end="\n" * bool(lines))
    print(f"{len(files)} programs" + (f", {different} differ" if given.against else ""))
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
