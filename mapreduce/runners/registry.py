"""Teaches mrjob this toolkit's runners."""


def install() -> None:
    pass
