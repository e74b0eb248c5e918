"""`python -m evenkeel.cli` is `evenkeel`."""

from evenkeel.cli import main

main()
