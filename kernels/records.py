"""The states in which :func:`kernels.cpu.records.record_ends` reads a byte, without Numba."""

#: Where a byte is read: at the start of a record, or of another field, and outside quotes.
RECORD, FIELD, PLAIN = 0, 1, 2
#: In quotes, and after their first line end; behind a quote that closes such a field, or is the
#: first of two; and behind blanks after the quotes of a field with a line end.
QUOTED, LONG, CLOSED, LONG_CLOSED, BLANKS = 3, 4, 5, 6, 7

LF, CR = 10, 13


def is_quoted(state: int) -> bool:
    """Whether a state is one in quotes that are left open."""
    return state in (QUOTED, LONG)
