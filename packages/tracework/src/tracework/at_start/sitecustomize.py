"""What each Python below `tracework run` executes at its start, found through PYTHONPATH; then the machine's own sitecustomize."""

import os
import sys

sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
try:
    from tracework.run import begin
except ImportError:  # another Python, which does not have it
    pass
else:
    begin()
own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401
except ImportError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", own)  # the import of this one ends by looking there
