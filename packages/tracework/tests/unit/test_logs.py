"""TRACEWORK_LOGS: what each artifact prints, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch, tracework
def f(x):
    y = torch.sin(x) + 1
    tracework.graph_break()
    return torch.linalg.inv(y.reshape(2, 2) + torch.eye(2))
tracework.compile(f)(torch.ones(4))
"""


WORDS = {
    "tracework.products.captured": "sin",
    "tracework.capture.breaks": "graph break",
    "tracework.products.primops": "sin(%",
    "tracework.products.inductor": "def call(args)",
    "tracework.fallbacks": "linalg",
    "tracework.timing": "primops",
}


def test_artifacts_print_what_they_say(tmp_path):
    environment = dict(
        os.environ, TRACEWORK_LOGS="graph,breaks,prims,output_code,fallbacks,timing", TRACEWORK_CACHE_DIR=str(tmp_path / "cache")
    )
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for logger, words in WORDS.items():
        parts = [part.split("\n[tracework")[0] for part in done.stderr.split(f"[{logger}] ")[1:]]
        assert any(words in part for part in parts), f"{logger} does not say {words!r}: {parts}"


def test_no_artifact_turns_on_another():
    """A logger takes its level from those above it, so that none stands above another's, or for two artifacts."""
    from tracework.logs import LOGS

    owner = {logger: artifact for artifact, (loggers, _) in LOGS.items() for logger in loggers}
    assert len(owner) == sum(len(loggers) for loggers, _ in LOGS.values())
    above = [(logger, other) for logger in owner for other in owner if other.startswith(f"{logger}.")]
    assert not above


def test_every_logger_is_an_artifacts():
    """What a package says goes to a logger that a name of TRACEWORK_LOGS turns on."""
    from tracework.logs import LOGS

    sources = Path(__file__).parents[4].glob("packages/*/src/**/*.py")
    named = {name for path in sources for name in re.findall(r'getLogger\("([\w.]+)"\)', path.read_text())}
    assert len(named) > 10 and named <= {logger for loggers, _ in LOGS.values() for logger in loggers}


def test_the_graphs_of_aotautograd_are_text(tmp_path):
    program = (
        "import torch, tracework\n"
        "w = torch.ones(4, requires_grad=True)\n"
        "f = lambda x: (x * w).sin()\n"
        "for backend in ('inductor', 'aot_eager'):\n"
        "    call = tracework.compile(f, backend=backend)\n"
        "    call(torch.ones(4)).sum().backward()\n"
        "    with torch.no_grad(): call(torch.ones(4))\n"
    )
    environment = dict(
        os.environ, TRACEWORK_LOGS="aot", TRACEWORK_DUMP=str(tmp_path / "dump"), TRACEWORK_CACHE_DIR=str(tmp_path / "cache")
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    dumped = "".join(path.read_text() for path in (tmp_path / "dump").glob("*-aotautograd.txt"))
    for text in (done.stderr, dumped):
        assert all(words in text for words in ("# joint", "# forward", "# backward", "aten.cos.default"))
        assert "object at 0x" not in text and "GraphModule()" not in text


def test_budgets_are_a_line_and_a_table(tmp_path):
    program = (
        "import torch, tracework\n"
        "w = torch.ones(64, 64, requires_grad=True)\n"
        "f = lambda x: torch.nn.functional.gelu(x @ w).softmax(-1).square()\n"
        "tracework.compile(f, options={'memory_budget': 0.5})(torch.ones(64, 64)).sum().backward()\n"
    )
    environment = dict(os.environ, TRACEWORK_LOGS="budget", TRACEWORK_CACHE_DIR=str(tmp_path / "cache"))
    for _ in range(2):  # the second one finds all of it stored
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert re.search(r"memory_budget=0.5: of [\d,]+ bytes .* times as long \(predicted\)\nbudget  .*\n  1.00 ", done.stderr)


def test_unknown_artifacts_are_named():
    from tracework import UnknownName, logs

    with pytest.raises(UnknownName, match="Did you mean 'breaks'"):
        logs.enable("braks")


def test_explain_counts_the_captured_graphs():
    import torch
    import tracework

    assert tracework.explain(lambda x: x + 1, backend="eager")(torch.ones(2)).graphs == 1
