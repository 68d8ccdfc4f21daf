"""Writes packages/*/public_api.txt: the names of each package's `__all__`, for a test to compare with.

python tools/run_in_tree.py python tools/public_api.py
"""

import importlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    for folder in sorted((ROOT / "packages").iterdir()):
        name = folder.name if folder.name == "tracework" else f"tracework_{folder.name}"
        names = sorted(importlib.import_module(name).__all__)
        (folder / "public_api.txt").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    main()
