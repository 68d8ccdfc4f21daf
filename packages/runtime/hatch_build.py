"""Compiles csrc/ into tracework_runtime/_C when a wheel or an editable install is built."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ExtensionBuildHook(BuildHookInterface):
    """One gcc call; the wheel gets this interpreter's tag."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        product = root / "src" / "tracework_runtime" / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))
        sources = [str(path) for path in sorted((root / "csrc").glob("*.c"))]
        command = [*shlex.split(os.environ.get("CC", "gcc")), "-shared", "-fPIC", "-O2", "-g1", "-std=c11"]
        command += [f"-I{sysconfig.get_paths()['include']}", *sources, "-o", str(product)]
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError as error:
            raise RuntimeError(f"building tracework-runtime needs a C compiler; {command[0]!r} was not found, set CC") from error
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"src/tracework_runtime/{product.name}")
