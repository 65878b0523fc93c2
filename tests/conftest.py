"""Settings of all tests: programs and graphs are verified after each phase."""

import os

os.environ.setdefault("TOSAIC_VERIFY", "1")
