"""``python -m tosaic.cli``."""

from tosaic.cli import main

main()
