"""Makes this folder's program builders importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
