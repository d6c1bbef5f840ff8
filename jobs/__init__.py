"""Jobs to learn from and to run: each file is a program, ``python jobs/NAME.py --help``."""
