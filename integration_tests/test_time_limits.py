"""What a test waits for may never come: each process that is run or waited for has a limit, below the one that pytest.ini gives a test; and
no lock of ours waits for its own thread."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")}
WAIT = {"communicate", "wait"}


def without_limit(text):
    """Lines of calls that wait for ever."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    unlimited = [call for call in calls if "timeout" not in {keyword.arg for keyword in call.keywords}]
    runs = [call for call in unlimited if ast.unparse(call.func) in RUN]
    waits = [call for call in unlimited if isinstance(call.func, ast.Attribute) and call.func.attr in WAIT and not call.args]
    return sorted(call.lineno for call in (*runs, *waits))


def test_limits_are_seen():
    text = "subprocess.run(a)\nsubprocess.run(a, timeout=3)\np.wait()\np.wait(3)\nb.communicate(timeout=3)\nwait()\np.communicate()\n"
    assert without_limit(text) == [1, 3, 7]


def test_every_wait_of_a_test_has_a_limit():
    files = [*ROOT.glob("packages/*/tests/**/*.py"), *(ROOT / "integration_tests").glob("test_*.py")]
    texts = {file: file.read_text() for file in files}
    asked = {file: text for file, text in texts.items() if re.search(r"subprocess|\.wait\(|\.communicate\(", text)}
    assert len(files) > 400 and len(asked) > 20
    found = {str(file.relative_to(ROOT)): without_limit(text) for file, text in asked.items()}
    assert not {file: lines for file, lines in found.items() if lines}


def test_locks_may_be_taken_again():
    """While one is held a destructor may run, or a handler of a signal, that compiles: it would wait for its own thread."""
    found = {str(file.relative_to(ROOT)): file.read_text() for file in ROOT.glob("packages/*/src/**/*.py")}
    assert not [file for file, text in found.items() if re.search(r"= threading\.Lock\(\)", text)]
