"""Every table that the entry point reads is there, complete and documented; the command line prints them."""

import importlib
import logging
import re
from dataclasses import field, fields, make_dataclass
from pathlib import Path

import pytest
import torch
import tracework
import tracework_runtime as runtime
from tracework import backends, cli, config, demo, logs, modes, options, where
from tracework.onnx_engines import ENGINES
from tracework_capture.uncompiled import collected
from tracework_inductor.autotune.book import Book
from tracework_inductor.autotune.record import Candidate, Problem
from typer.testing import CliRunner

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(("module", "table"), [row[1:] for row in where.TABLES], ids=lambda x: x)
def test_every_table_of_where_exists_and_has_rows(module, table):
    assert len(getattr(importlib.import_module(module), table)) > 0


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gather", "tracework_primops/ops/indexing.py:"),
        ("gather", "tracework_inductor/lowering/indexing.py:"),
        ("aten.gather", "tracework_primops/decomp/indexing.py:"),
        ("FOR_ITER", "tracework_capture/interp/handlers/loops.py:"),
        ("dict", "tracework_capture/values/"),
        ("TENSOR", "tracework_capture/guards/kinds.py"),
        ("cudagraphs", "tracework/options.py"),
        ("TRACEWORK_CXX", "tracework/config.py:"),
    ],
)
def test_where_prints_file_and_line(name, file):
    shown = CliRunner().invoke(cli.app, ["where", name])
    assert shown.exit_code == 0 and file in shown.stdout.replace("\n", "")


def test_where_of_an_unknown_name_fails():
    assert CliRunner().invoke(cli.app, ["where", "no_such_thing"]).exit_code == 1


def test_doctor_and_options_print_what_they_know(monkeypatch):
    monkeypatch.setattr(cli.console, "width", 400)  # a narrow table breaks the names over lines
    doctor = CliRunner().invoke(cli.app, ["doctor"])
    assert doctor.exit_code == 0 and tracework.__version__ in doctor.stdout and "C++ compiler" in doctor.stdout
    assert all(state.text in doctor.stdout for state in backends.states().values())  # brackets of extras, too
    shown = CliRunner().invoke(cli.app, ["options"])
    assert shown.exit_code == 0
    assert all(row.name in shown.stdout and row.doc in shown.stdout for row in options.OPTION_NAMES.values())
    assert all(name in shown.stdout and row.doc in shown.stdout for name, row in config.ENVIRONMENT.items())


def test_each_options_meaning_can_be_read_alone():
    assert not [row.name for row in options.OPTION_NAMES.values() if row.doc.startswith("the same")]


def test_errors_on_the_command_line_show_their_brackets(monkeypatch):
    def no_model(device):
        raise tracework.InvalidArgument("pip install 'tracework[demo]'")

    monkeypatch.setattr(demo, "build_model", no_model)
    shown = CliRunner().invoke(cli.app, ["demo"])
    assert shown.exit_code == 1 and shown.stdout.strip() == "InvalidArgument: pip install 'tracework[demo]'"


def test_adopt_seals_the_entries_of_another(tmp_path, monkeypatch):
    for number, key in enumerate((b"a" * 32, b"b" * 32)):
        runtime.Store(tmp_path / "cache", secret_key=key).put("cut", f"key{number}", b"1 2")
    (tmp_path / "key").write_bytes(b"a" * 32)
    (tmp_path / "key").chmod(0o600)
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "key"))
    shown = CliRunner().invoke(cli.app, ["adopt", str(tmp_path / "cache")])
    assert shown.exit_code == 0 and shown.stdout.startswith("1 entries")
    assert runtime.Store(tmp_path / "cache", secret_key=b"a" * 32).get("cut", "key1") == b"1 2"
    (tmp_path / "cache").chmod(0o777)
    assert CliRunner().invoke(cli.app, ["adopt", str(tmp_path / "cache")]).exit_code == 1


def test_tuning_books_are_shown_and_merged(tmp_path, monkeypatch):
    problem = Problem("pointwise", (("x", 4096),), ("float32",), (), "H200")
    monkeypatch.setenv("TRACEWORK_CACHE_KEY", str(tmp_path / "key"))
    (tmp_path / "key").write_bytes(b"a" * 32)
    (tmp_path / "key").chmod(0o600)
    shown = []
    for n, us in enumerate((4.0, 3.0)):
        store = runtime.Store(tmp_path / f"c{n}", secret_key=b"a" * 32)
        Book({}, store).keep(problem, (Candidate("pointwise", measured_us=us),))
        shown.append(CliRunner().invoke(cli.app, ["tune", "show", str(tmp_path / f"c{n}")]).stdout)
        (tmp_path / f"book{n}").write_text(shown[-1] + "{\n")
    assert all(text.count("\n") == 1 for text in shown)
    merged = CliRunner().invoke(cli.app, ["tune", "merge", str(tmp_path / "book0"), str(tmp_path / "book1")])
    assert merged.exit_code == 0 and merged.stdout == shown[1] and "book0:2: no row" in merged.stderr
    assert CliRunner().invoke(cli.app, ["tune", "merge", str(tmp_path / "none")]).exit_code == 1
    (tmp_path / "c0").chmod(0o777)
    assert CliRunner().invoke(cli.app, ["tune", "show", str(tmp_path / "c0")]).exit_code == 1


def test_every_option_has_a_type_that_is_checked_and_a_meaning():
    for row in options.OPTION_NAMES.values():
        assert row.type in options._CHECKS and row.doc
    assert set(options.OTHER_NAMES.values()) <= set(options.OPTION_NAMES)


@pytest.mark.parametrize(("metadata", "docs", "lacking"), [({}, {"new": "x"}, "code"), ({"code": True}, {}, "Attributes")])
def test_an_option_that_lacks_something_is_named(metadata, docs, lacking):
    (row,) = fields(make_dataclass("Some", [("new", bool, field(default=False, metadata=metadata))]))
    with pytest.raises(TypeError, match=f"option 'new' lacks .*{lacking}"):
        options.option_name(row, docs)


def test_every_option_is_read_somewhere():
    text = "".join(path.read_text() for path in Path(tracework.__file__).parent.rglob("*.py"))
    unread = [
        name for name in options.OPTION_NAMES if len(re.findall(rf"\b{name}\b", text)) < 3
    ]  # its field, its meaning, its reader
    assert unread == []


def test_every_log_word_has_loggers_that_somebody_writes_to():
    sources = [path for path in (ROOT / "packages").glob("*/src/**/*.py") if path.name != "logs.py"]
    words = set(re.findall(r'"([\w.]+)"', "".join(path.read_text() for path in sources)))
    loggers = {logger.removeprefix("tracework.products.") for names, _ in logs.LOGS.values() for logger in names}
    assert loggers - words <= {"guards", "sizes"}  # which logs.py makes of what is captured


@pytest.mark.parametrize("name", sorted(backends.BACKENDS.keys() - ENGINES.keys()))
def test_every_backend_runs_forward_and_backward(name):
    def plain(x):
        return x.sin() * x

    x = torch.randn(3, requires_grad=True)
    with collected() as told:  # that a graph raised, and ran uncompiled
        found = tracework.compile(plain, backend=name, fullgraph=True)(x)
    assert told == []
    torch.testing.assert_close(found, plain(x))
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(plain(x).sum(), x))


def test_the_page_of_backends_names_each():
    page = (ROOT / "packages" / "tracework" / "BACKENDS.md").read_text().partition("An engine is given")[0]
    assert re.findall(r"^\| `(\w+)`", page, re.M) == sorted({*backends.BACKENDS, *backends.RETIRED}), "nox -s backends -- --write"


def test_modes_set_options_that_exist_and_are_torchs():
    assert set(modes.MODES) == {"default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"}
    assert {name for patch in modes.MODES.values() for name in patch} <= set(options.OPTION_NAMES)


def test_every_environment_variable_sets_a_field_and_only_config_reads_the_environment():
    of_torch = {"torch_logs", "torchs", "refused"}
    assert {v.field for v in config.ENVIRONMENT.values()} == {f.name for f in fields(config.Config)} - of_torch
    sources = Path(tracework.__file__).parent.glob("*.py")
    assert {p.name for p in sources if "os.environ" in p.read_text()} == {
        "config.py",
        "run.py",
    }  # which sets PYTHONPATH for children


@pytest.mark.parametrize("name", config.ENVIRONMENT)
def test_environment_variables_reach_the_config(name):
    variable = config.ENVIRONMENT[name]
    text = "1" if variable.parse is config._flag else "graph"
    assert getattr(config.current({name: text}), variable.field) == variable.parse(text)


def test_a_variable_that_does_not_parse_is_named():
    with pytest.raises(tracework.InvalidArgument, match="TRACEWORK_DISABLE='maybe'"):
        config.current({"TRACEWORK_DISABLE": "maybe"})


def test_variables_are_honoured_by_compile(monkeypatch):
    def f(x):
        return x

    monkeypatch.setenv("TRACEWORK_DISABLE", "1")
    assert tracework.compile(f) is f
    monkeypatch.delenv("TRACEWORK_DISABLE")
    monkeypatch.setenv("TRACEWORK_CXX", "no-such-compiler")
    with pytest.raises(tracework.MissingCompiler, match="no-such-compiler"):
        tracework.compile(f)
    monkeypatch.delenv("TRACEWORK_CXX")
    monkeypatch.setenv("TRACEWORK_LOGS", "grahp")
    with pytest.raises(tracework.UnknownName, match="Did you mean 'graph'"):
        tracework.compile(f)


def test_log_names_turn_their_loggers_on():
    logger = logging.getLogger(logs.LOGS["cudagraphs"][0][0])
    try:
        logs.enable("cudagraphs")
        assert logger.level == logging.DEBUG and logs._handler in logger.handlers
    finally:
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
        logger.removeHandler(logs._handler)


PACKAGES = ("capture", "aotautograd", "primops", "inductor", "runtime", "tracework")


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist(package):
    """That they are those on record is told by `nox -s api`."""
    module = importlib.import_module(package if package == "tracework" else f"tracework_{package}")
    assert not [name for name in module.__all__ if not hasattr(module, name)]
