"""The command line: the outermost layer, which nothing imports."""
