"""``python -m cuda_on_cpu -m pytest tests``: Python with the compiler's sanitizers in it."""

import sys

from . import run_with_sanitizers

if __name__ == "__main__":
    sys.exit(run_with_sanitizers(sys.argv[1:]).returncode)
