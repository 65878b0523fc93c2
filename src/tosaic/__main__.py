"""``python -m tosaic``: the command line."""

from tosaic.cli import main

main()
