"""`python exercises ACTION ...`: what `ansor exercise` starts, from whatever folder the learner is in."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from exercises.core.command import main  # noqa: E402  (the checkout is on the path only from here on)

sys.exit(main(sys.argv[1:]))
