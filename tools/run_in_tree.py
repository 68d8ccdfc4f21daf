"""Runs a command from the source tree with nothing installed: builds the C extensions in place and sets PYTHONPATH.

python tools/run_in_tree.py python -m pytest packages/capture/tests
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITH_C = ("capture", "runtime")
"""The packages with an extension: csrc/ is compiled into src/tracework_NAME/_C."""


def build_extension(name: str) -> None:
    """Compiles a package's csrc/ into its folder when a source is newer than the product."""
    package = ROOT / "packages" / name
    sources = sorted((package / "csrc").glob("*.c"))
    product = package / "src" / f"tracework_{name}" / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))
    newest = max(p.stat().st_mtime for p in (package / "csrc").iterdir())
    if product.exists() and product.stat().st_mtime >= newest:
        return
    part = product.with_suffix(f".part{os.getpid()}")
    command = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-O2", "-g", "-std=c11", "-Wall", "-Wno-unused-function"]
    command += [f"-I{sysconfig.get_paths()['include']}", *map(str, sources), "-o", str(part)]
    print("building", name, product.name, file=sys.stderr)
    subprocess.run(command, check=True)
    part.replace(product)


def give_way_to(command: str) -> None:
    """The extensions are built for the Python of the command: another version than this one runs this script itself."""
    if not Path(command).name.startswith("python"):
        return
    ask = [command, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"]
    if subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() != sysconfig.get_config_var("EXT_SUFFIX"):
        os.execvp(command, [command, __file__, *sys.argv[1:]])


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    give_way_to(sys.argv[1])
    for name in WITH_C:
        build_extension(name)
    folders = [str(p) for p in sorted((ROOT / "packages").glob("*/src"))]
    inherited = os.environ.get("PYTHONPATH")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(folders + ([inherited] if inherited else [])))
    command = sys.argv[1:]
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    return subprocess.call(command, env=environment)


if __name__ == "__main__":
    sys.exit(main())
