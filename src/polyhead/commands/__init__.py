"""The commands behind the command line, one idea a file; imported only when asked for."""
