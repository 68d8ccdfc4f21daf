"""python -m tensor_programs [--seeds A:B] [--jobs N] [--backend NAME]: programs without end in sight; tools/campaign.py has the options."""

import sys

from random_programs import run_campaign

from . import check, generate

if __name__ == "__main__":
    sys.exit(run_campaign(__doc__, generate, check, "inductor"))
