"""`python -m pipeline` is the `lastpage` command."""

from pipeline.cli.main import main

main()
