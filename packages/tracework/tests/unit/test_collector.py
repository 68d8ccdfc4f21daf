"""The collector during imports."""

import subprocess
import sys


def test_nothing_is_collected_while_the_packages_are_imported():
    """And what the program had set holds after."""
    code = (
        "import gc, torch, tracework, sys\n"
        "gc.callbacks.append(lambda phase, info: runs.append(phase))\n"
        "for runs, change in ([], gc.enable), ([], gc.disable):\n"
        "    change()\n"
        "    del runs[:]\n"
        "    call = tracework.compile(lambda x: x + 1)\n"
        "    print(len(runs) < 20, gc.isenabled(), 'tracework_inductor' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == ["True True True", "True False True"]
