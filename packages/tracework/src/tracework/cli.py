"""The command line: tracework run | report | profile | demo | doctor | where | options | explain-break | adopt | cache | tune |
diff | bisect | minify.

`run` becomes another Python and does without torch: what loads torch is imported by the commands that need it.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ._version import __version__
from .errors import InvalidArgument, TraceworkError
from .run import run as become
from .run import run_dumping

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A compiler for unmodified PyTorch programs.")
console = Console(markup=False)
"""What is printed is text, in which brackets (`tracework[onnxrt]`, `L['x']`) are brackets."""


def _say(error: Exception) -> None:
    console.print(Text(type(error).__name__, style="red"), Text(f": {error}"), sep="")


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="""Runs a program as `python` does, with torch.compile replaced, there and in each Python that it starts.

    tracework run train.py --epochs 3, tracework run -m package.train; under torchrun: torchrun -m tracework run train.py.""",
)
def run(
    arguments: Annotated[list[str], typer.Argument(help="what follows `python`: a script or -m and a module, and its arguments")],
) -> None:
    try:
        become(arguments)
    except TraceworkError as error:
        _say(error)
        raise typer.Exit(2) from error


_PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}
Program = Annotated[list[str], typer.Argument(help="a script or -m and a module, and its arguments")]


@app.command(context_settings=_PROGRAM)
def report(
    program: Program,
    output: Annotated[str, typer.Option("--output", "-o", help="the page; with .json at its end, the data")] = "report.html",
    profile: Annotated[bool, typer.Option(help="time each kernel, and measure what the machine can do")] = False,
) -> None:
    """Runs a program with torch.compile replaced, and writes what was compiled, and to what, as one page."""
    from .reporting import Report
    from .script import run_script

    try:
        found, process = Report(" ".join(program), output, profile), os.getpid()
    except InvalidArgument as error:
        _say(error)
        raise typer.Exit(2) from error
    try:
        with found:
            code = run_script(program)
    except OSError as error:  # the page is not written; the program's own errors are told before
        _say(error)
        code = 1
    finally:  # a program that is stopped has compiled something, too
        if os.getpid() == process:  # not a fork of it
            console.print(Text(str(found)), soft_wrap=True)
    raise typer.Exit(code)


@app.command(name="profile", context_settings=_PROGRAM)
def profile_command(
    program: Program,
    output: Annotated[str, typer.Option("--output", "-o", help="a file for Perfetto or chrome://tracing; empty: none")] = "",
) -> None:
    """Runs a program with torch.compile replaced, and draws the time that its compilation took, by function and stage."""
    from .reports.compile_time import drawn, perfetto
    from .reports.recorder import Recorder
    from .script import run_script

    file, process = Path(output).absolute() if output else None, os.getpid()
    recorder = Recorder()
    recorder.start()
    try:
        code = run_script(program)
    finally:
        recorder.stop()
        if os.getpid() == process:  # not a fork of it
            console.print(drawn(recorder.spans), soft_wrap=True)
            if file is not None:
                file.write_text(perfetto(recorder.spans), encoding="utf-8")
    raise typer.Exit(code)


@app.command()
def demo(device: Annotated[str, typer.Option(help="cpu or cuda; left out: cuda where there is one")] = "") -> None:
    """Compiles a real model and prints eager against compiled."""
    import torch

    from .demo import run_demo

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        run_demo(chosen, console)
    except TraceworkError as error:
        _say(error)
        raise typer.Exit(1) from error


@app.command()
def doctor() -> None:
    """What this machine has: versions, compiler, device, cache folder."""
    import torch
    import tracework_runtime as runtime

    from . import backends, config

    settings = config.current()
    table = Table("what", "found")
    table.add_row("tracework", __version__)
    table.add_row("python", platform.python_version())
    table.add_row("torch", torch.__version__)
    try:
        compiler = runtime.find_compiler(settings.cxx or None).identity
    except runtime.RuntimeFailure as error:
        compiler = f"none: {error}"
    table.add_row("C++ compiler", compiler)
    table.add_row("CUDA device", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    table.add_row("cache folder", settings.cache_dir)
    table.add_row("cache folders that are only read", settings.cache_layers or "none")
    table.add_row("shared cache", settings.cache_shared or "none")
    for name, state in backends.states().items():
        table.add_row(f"backend {name}", state.text)
    console.print(table)


def _store(folder: str) -> Any:
    """The store in a folder, or the one in use."""
    import tracework_runtime as runtime

    from . import config

    settings = config.current()
    return runtime.Store(folder or settings.cache_dir or None, secret_key=runtime.secret(settings.cache_key or None))


_Folder = Annotated[str, typer.Argument(help="a cache folder; left out: the one in use")]
cache = typer.Typer(no_args_is_help=True, help="The disk cache: what is in it, and its entries as one file for another machine.")
app.add_typer(cache, name="cache")


@contextmanager
def _told() -> Iterator[None]:
    """What the runtime refuses is told, and the command fails."""
    import tracework_runtime as runtime

    try:
        yield
    except (runtime.RuntimeFailure, OSError) as error:
        _say(error)
        raise typer.Exit(1) from error


@cache.command(name="list")
def list_cache(folder: _Folder = "") -> None:
    """Prints how many entries of each kind there are, and their bytes."""
    with _told():
        store = _store(folder)
        sizes: dict[str, list[int]] = {}
        for (kind, _, _), facts in sorted(store.names().items()):
            sizes.setdefault(kind, []).append(facts.st_size)
    table = Table("kind", "entries", "bytes", title=str(store.folder))
    for kind, found in sizes.items():
        table.add_row(kind, str(len(found)), f"{sum(found):,}")
    table.add_row("all", str(sum(map(len, sizes.values()))), f"{sum(map(sum, sizes.values())):,}")
    console.print(table)


@cache.command()
def verify(folder: _Folder = "") -> None:
    """Reads every entry and its seal. Those that are damaged or were sealed with another key are named, and left as they are; 1 where any are."""
    with _told():
        store = _store(folder)
        found, count = store.untrusted(), len(store.names())
    for why in found.values():
        console.print(why, highlight=False, soft_wrap=True)
    console.print(f"{count - len(found)} of {count} entries of {store.folder} can be trusted")
    raise typer.Exit(1 if found else 0)


_Key = Annotated[str, typer.Option("--key", help="a file whose bytes are the key that signs what is carried")]


def _key(file: str) -> bytes | None:
    """Raises OSError for a file that cannot be read."""
    return Path(file).read_bytes() if file else None


@cache.command(name="save")
def save_cache(file: Annotated[str, typer.Argument(help="the file to write")], folder: _Folder = "", key: _Key = "") -> None:
    """Writes all entries to one file, which `tracework cache load` reads on another machine of the same kind."""
    from tracework_runtime import carry

    with _told():
        store = _store(folder)
        names = sorted(store.names())
        content = carry(store, names, _key(key))
        Path(file).write_bytes(content)
    console.print(f"{len(names)} entries of {store.folder}, {len(content):,} bytes, are in {file}", soft_wrap=True)


@cache.command(name="load")
def load_cache(
    file: Annotated[str, typer.Argument(help="what `tracework cache save` wrote")], folder: _Folder = "", key: _Key = ""
) -> None:
    """Puts the entries of a file into the cache. They are programs that will run: load only what you trust. With a key, it has to be signed."""
    from tracework_runtime import put_carried

    with _told():
        store = _store(folder)
        names = put_carried(store, Path(file).read_bytes(), _key(key))
    console.print(f"{len(names)} entries of {file} are in {store.folder}", soft_wrap=True)


@app.command()
def adopt(folder: _Folder = "") -> None:
    """Makes a cache folder that was copied from another machine or user usable here. Its entries are programs: adopt only what you trust."""
    with _told():
        store = _store(folder)
        console.print(f"{store.adopt()} entries of {store.folder} adopted")


tune = typer.Typer(no_args_is_help=True, help="Tuning books: what max_autotune has measured, a line of JSON a problem.")
app.add_typer(tune, name="tune")


@tune.command()
def show(folder: _Folder = "") -> None:
    """Prints what was measured with a cache folder."""
    from tracework_inductor.autotune.book import kept

    with _told():
        store = _store(folder)
    for row in kept(store):
        typer.echo(row.line())


@tune.command()
def merge(files: Annotated[list[str], typer.Argument(help="books, as `show` prints them")]) -> None:
    """Prints the rows of several books, of those for one problem the quickest. Lines that are no rows are told and left out."""
    from tracework_inductor.autotune.book import merged, rows_of_lines

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            rows = merged([list(rows_of_lines(Path(file).read_text().splitlines(), file)) for file in files])
        except (OSError, UnicodeDecodeError) as error:
            _say(error)
            raise typer.Exit(1) from error
    for warning in told:
        typer.echo(str(warning.message), err=True)
    for row in rows:
        typer.echo(row.line())


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="""Says which stage of compiling, operator and line is at fault: eager, functional graph, prims and compiled code against float64.

    tracework diff FILE.case, or tracework diff train.py --epochs 1, which runs the program and looks at each graph that it compiled.""",
)
def diff(
    arguments: Annotated[list[str], typer.Argument(help="a case, or a script and its arguments")],
    time: Annotated[
        bool, typer.Option("--time", help="tell what each kernel takes, beside eager's operators and its limit")
    ] = False,
) -> None:
    if not arguments[0].endswith(".case"):
        _diff_script(arguments, time)
        return
    _examine(arguments, "diff", time=time)


def _diff_script(arguments: list[str], time: bool) -> None:
    import tempfile

    folder = tempfile.mkdtemp(prefix="tracework-diff-")
    ended = run_dumping(arguments, folder)
    found = sorted(map(str, Path(folder).glob("*.case")))
    if not found:
        console.print(f"{arguments[0]} ended with {ended} and compiled no graph that a case can hold. Next: tracework.explain.")
        raise typer.Exit(1)
    _examine(found, "diff", time=time)


@app.command()
def bisect(
    cases: Annotated[list[str], typer.Argument(help="cases, as CompileError names them and dump_dir receives them")],
) -> None:
    """Names the rule at fault: a decomposition, a pass, a fusion, the reuse of memory, or the kernel of an operator."""
    _examine(cases, "bisect")


def _examine(files: list[str], how: str, **options: bool) -> None:
    """Prints what `diff` or `bisect` finds of each case; exits with 1 where something is wrong."""
    from .cases import Case
    from .faults import find

    wrong = False
    for file in files:
        try:
            report = getattr(find, how)(Case.load(file), file, **options)
        except TraceworkError as error:
            _say(error)
            raise typer.Exit(2) from error
        typer.echo(str(report))
        wrong |= report.failure is not None
    raise typer.Exit(1 if wrong else 0)


@app.command()
def minify(
    case: Annotated[str, typer.Argument(help="a case")],
    out: Annotated[str, typer.Option(help="the small case; left out: beside the large one")] = "",
) -> None:
    """Makes the smallest program that still fails in the same way: a case, and a script, which it prints."""
    from .cases import Case
    from .faults.minify import minify as smallest

    path = Path(out) if out else Path(case).with_name(f"{Path(case).stem}-small.case")
    try:
        found = smallest(Case.load(case))
        found.case.save(path)
    except TraceworkError as error:
        _say(error)
        raise typer.Exit(2) from error
    typer.echo(f"{found}\n\n{found.script(str(path))}\nWritten to {path}. Next: tracework bisect {path} names the rule at fault.")


@app.command(name="options")
def list_options() -> None:
    """Every option of compile(options=...), and every environment variable."""
    from . import config, options

    table = Table("option", "type", "default", "meaning")
    for row in options.OPTION_NAMES.values():
        table.add_row(row.name, row.type, repr(row.default), row.doc)
    for name, variable in config.ENVIRONMENT.items():
        table.add_row(name, "environment", "", variable.doc)
    console.print(table)


@app.command(name="explain-break")
def explain_break(
    reason_id: Annotated[
        str, typer.Argument(help="the id, as a message, explain() and the log breaks show it; left out: all")
    ] = "",
) -> None:
    """Says what a reason to break a graph is, with a small program that breaks so, and what to write instead."""
    from tracework_capture import BREAK_REASONS

    from .break_pages import break_page

    if not reason_id:
        table = Table("id", "what", "what to do")
        for name, row in BREAK_REASONS.items():
            table.add_row(name, row.what, row.cure)
        console.print(table)
        return
    try:
        typer.echo(break_page(reason_id), nl=False)
    except InvalidArgument as error:
        _say(error)
        raise typer.Exit(1) from error


@app.command()
def where(
    name: Annotated[str, typer.Argument(help="an op, callable, opcode, keyword, Python type, guard kind, option or term")],
) -> None:
    """Prints file:line of every rule for a name, from the tables themselves, and which one decides on calls of it."""
    from .where import places

    found = places(name)
    if not found:
        console.print(f"nothing is known under the name {name!r}: give an op (gather), opcode (FOR_ITER), type (dict), ...")
        raise typer.Exit(1)
    for what, place, in_force in found:
        console.print(f"{what:24} {place}{'  in force' if in_force else ''}", highlight=False, soft_wrap=True)
