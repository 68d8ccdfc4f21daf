"""`tracework run ARGUMENTS` against `python ARGUMENTS`: what a program sees, gives and leaves, without and with torch."""

import os
import subprocess
import sys
import venv

import pytest

COMMANDS = {"python": [], "tracework run": ["-m", "tracework", "run"]}

SEES = """
import os, sys
print(__name__, __file__.endswith("sees.py"), sys.argv, sys.path, sys.flags, sys.warnoptions, [m for m in sys.modules if m == "torch"])
print(__doc__, __spec__ and __spec__.name, sorted(globals()))
"""
PROGRAMS = {
    "script": ["sees.py", "-m", "--help", "a b", "-I"],
    "module": ["-m", "inside.sees", "-u", "--version"],
    "package": ["-m", "inside"],
    "code": ["-c", "import sys; print(sys.argv, sys.path)", "-m", "x"],
    "switches": ["-O", "-W", "error", "-X", "dev", "sees.py"],
    "safe path": ["-P", "sees.py"],
    "exit code": ["-c", "raise SystemExit(7)"],
    "exit text": ["-c", "raise SystemExit('stopped')"],
    "signal": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
    "error": ["raises.py"],
    "no such file": ["nowhere.py"],
    "no such module": ["-m", "nowhere"],
    "no syntax": ["-c", "1 +"],
    "interrupt": ["-c", "raise KeyboardInterrupt"],
    "child": ["-c", "import subprocess, sys; print(subprocess.check_output([sys.executable, 'sees.py', 'b'], text=True))"],
    "its own sitecustomize": ["-c", "import sys; print(sys.own, 'sitecustomize' in sys.modules)"],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sees.py").write_text(SEES)
    (tmp_path / "raises.py").write_text("def f():\n    raise ValueError('no')\n\n\nf()\n")
    (tmp_path / "inside").mkdir()
    for name in ("__main__.py", "sees.py"):
        (tmp_path / "inside" / name).write_text(SEES)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.own = __name__\n")
    return tmp_path


def outcome(command, arguments, folder, text=None, **environment):
    paths = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *COMMANDS[command], *arguments],
        **{"capture_output": True, "text": True, "cwd": folder, "input": text},
        env={**os.environ, "PYTHONPATH": paths, **environment},
        timeout=300,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_run_as_python_runs_it(program, folder):
    theirs, ours = (outcome(command, PROGRAMS[program], folder) for command in COMMANDS)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


def test_a_program_is_read_from_standard_input(folder):
    theirs, ours = (outcome(command, ["-"], folder, text="import sys; print(sys.argv, __name__)") for command in COMMANDS)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout) == (0, "['-'] __main__\n")


@pytest.mark.parametrize("switch", ["-I", "-E", "-uS"])
def test_switches_that_rule_it_out_are_refused(switch, folder):
    done = outcome("tracework run", [switch, "sees.py"], folder)
    assert done.returncode == 2 and f"-{switch[-1]}" in done.stdout and "replace_torch_compile" in done.stdout


def test_switches_of_the_first_python_are_passed_on(folder):
    done = subprocess.run(
        [
            sys.executable,
            "-u",
            "-X",
            "dev",
            "-m",
            "tracework",
            "run",
            "-c",
            "import sys; print(sys.flags.dev_mode, sys.orig_argv[1:4])",
        ],
        **{"capture_output": True, "text": True, "cwd": folder},
        timeout=300,
    )
    assert done.stdout == "True ['-u', '-X', 'dev']\n", done.stderr


BODY = """
import multiprocessing, os, sys
from torch import compile
import torch

@compile(backend=lambda gm, inputs: (print("graph", flush=True), gm.forward)[1])
def f(x):
    return x.sin() + 1

def work():
    assert torch.equal(f(torch.ones(2)), torch.ones(2).sin() + 1) and "torch._dynamo" not in sys.modules
"""
CHILDREN = """
if __name__ == "__main__":
    for way in ("spawn", "fork", "forkserver"):
        child = multiprocessing.get_context(way).Process(target=work)
        child.start(), child.join()
        assert child.exitcode == 0
    work()
"""
RANK = """
if __name__ == "__main__":
    print("rank", os.environ["RANK"], *sys.argv[1:])
    work()
"""


def test_torch_compile_is_ours_in_the_program_and_its_children(folder):
    (folder / "program.py").write_text(BODY + CHILDREN)
    done = outcome("tracework run", ["program.py"], folder)
    assert done.returncode == 0 and done.stdout.split() == ["graph"] * 4, done.stderr


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]


@pytest.mark.parametrize("way", ["torchrun -m tracework run", "tracework run torchrun"])
def test_torch_compile_is_ours_under_torchrun(way, folder):
    (folder / "program.py").write_text(BODY + RANK)
    program = ["program.py", "--steps", "3"]
    if way == "tracework run torchrun":
        done = outcome("tracework run", [*TORCHRUN, *program], folder)
    else:
        done = outcome("python", [*TORCHRUN, "-m", "tracework", "run", *program], folder)
    assert done.returncode == 0 and done.stdout.splitlines() == ["rank 0 --steps 3", "graph"], done.stderr


def test_a_python_without_us_runs_as_it_is(folder):
    """Such as the one of a subprocess in another environment."""
    from tracework import run

    venv.create(folder / "other", symlinks=True)
    done = subprocess.run(
        [folder / "other" / "bin" / "python", "-c", "import sys; print('tracework' in sys.modules, sys.path[:2])"],
        **{"capture_output": True, "text": True, "cwd": folder, "env": {"PYTHONPATH": f"{run.AT_START}{os.pathsep}there"}},
        timeout=300,
    )
    assert done.stdout.startswith("False ['', ") and "there" in done.stdout and not done.stderr


def test_the_command_line_does_without_torch():
    shown = subprocess.run(
        [sys.executable, "-c", "import sys, tracework.cli; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert shown.stdout == "False\n"
