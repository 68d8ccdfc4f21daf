"""tools/capture_diff.py tells what capture makes of programs; `nox -s attempts` counts it for all of the zoo in zoo/ATTEMPTS.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[1] / "tools"
TABLE = Path(__file__).parent / "zoo" / "ATTEMPTS.md"
PROGRAMS = "^syntax: walrus$|^one_graph: aten_scalars$|^one_graph: attributes_of_a_compiled_module$"
"""A second entry for another size, inputs of a graph that are named by their addresses, a set."""
SAMPLE = (
    "awkward/until_converged=inference",
    "awkward/lbfgs_step=inference",
    "timm/resnet18=inference",
    "DINOv3ViTModel=inference",
)
OWN_PROGRAM = """
import sys
from functools import partial
from pathlib import Path
import torch
from capture_diff import write
from capture_programs import call_once

def program(x):
    return x + {}

write(iter([("program", partial(call_once, program, torch.ones(2), False))]), Path(sys.argv[1]), "")
"""


def run(script, *arguments, seed="random"):
    environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=os.pathsep.join([str(TOOLS), *sys.path]))
    return subprocess.run([sys.executable, script, *arguments], env=environment, capture_output=True, text=True, timeout=300)


def test_two_runs_are_equal(tmp_path):
    first = run(TOOLS / "capture_diff.py", tmp_path / "first", "--name", PROGRAMS, "--only", "language", seed="1")
    assert (first.returncode, first.stdout) == (0, "3 programs\n"), first.stderr
    given = tmp_path / "second", "--name", PROGRAMS, "--only", "language", "--against", tmp_path / "first"
    second = run(TOOLS / "capture_diff.py", *given, seed="2")
    assert (second.returncode, second.stdout) == (0, "3 programs, 0 differ\n"), second.stderr
    missing = run(
        TOOLS / "capture_diff.py", tmp_path / "third", "--name", "^explicit$", "--only", "breaks", "--against", tmp_path
    )
    assert missing.returncode == 1 and missing.stdout.endswith("1 programs, 1 differ\n"), missing.stderr
    assert "\n+attempt\n" in missing.stdout and re.search(r"\n\+ .* LOAD_CONST 'half way'\n", missing.stdout)


def test_a_changed_program_shows(tmp_path):
    texts = []
    for added in ("1", "2"):
        script = tmp_path / "script.py"
        script.write_text(OWN_PROGRAM.format(added))
        done = run(script, tmp_path / added)
        assert done.returncode == 0, done.stderr
        texts.append((tmp_path / added / "program.txt").read_text().splitlines())
    changed = [(one, other) for one, other in zip(*texts, strict=True) if one != other]
    assert any("(%in_x, 1)" in one and "(%in_x, 2)" in other for one, other in changed)


def rows(table):
    """Record -> its counts."""
    cells = [line.strip("| ").split(" | ") for line in table.read_text().splitlines() if line.startswith("| ")]
    return {name: tuple(map(int, counts)) for name, *counts in cells[1:]}


def test_attempts_are_those_of_the_table(tmp_path):
    sample = "|".join(f"^{re.escape(job)}$" for job in SAMPLE)
    done = run(TOOLS / "capture_diff.py", tmp_path, "--only", "zoo", "--name", sample, "--counts", tmp_path / "table.md")
    found, known = rows(tmp_path / "table.md"), rows(TABLE)
    assert set(found) == set(SAMPLE), done.stderr
    assert found == {job: known[job] for job in SAMPLE}
    assert all(graphs <= attempts for graphs, _, attempts in known.values())
