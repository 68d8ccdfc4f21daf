"""The Python examples of the packages' READMEs run as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READMES = sorted(p for p in (ROOT / "packages").glob("*/README.md") if "```python" in p.read_text())


@pytest.mark.parametrize("readme", READMES, ids=lambda p: p.parent.name)
def test_examples_run(readme, tmp_path):
    script = tmp_path / "example.py"  # a file, because capture reads the source of what it captures
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
