"""Records of delimited text: where each ends, if fields in quotes may go over several lines.

A quote opens a field only as its first byte; within, two of them are one; after the one that closes
it, the field goes on without quotes. So do the csv module of Python, Arrow and pandas.
"""

import numpy as np
import numpy.typing as npt

from kernels.cpu import jit
from kernels.records import BLANKS, CR, FIELD, LF, LONG, LONG_CLOSED, PLAIN, QUOTED, RECORD

_TAB, _SPACE = 9, 32


def record_ends(
    text: bytes | memoryview, delimiter: int, quote: int, end: int = LF, state: int = RECORD
) -> tuple[npt.NDArray[np.int64], int, int]:
    """The places behind the ends of records in some text.

    ``delimiter``, ``quote`` and ``end`` are the bytes between fields, around them, and at the end
    of a record. LF and CR outside of quotes end a field in any case. ``state`` is what this
    function has returned for the text before.

    Returns the places, an array (n,) of int64, ascending; the state behind the text; and the number
    of ends before a field that has a line end and goes on after its quotes, not only with blanks,
    as where quotes of another field were left open, or -1 if there is none. Raises ValueError (a
    byte is not from 0 to 255, or the state is unknown).
    """
    if not all(0 <= byte < 256 for byte in (delimiter, quote, end)) or not 0 <= state <= BLANKS:
        raise ValueError(
            f"record_ends: delimiter {delimiter}, quote {quote}, end {end}, state {state}: "
            f"expected bytes from 0 to 255, and a state from 0 to {BLANKS}"
        )
    data = np.frombuffer(text, np.uint8)
    data.flags.writeable = False
    ends = np.empty(np.count_nonzero(data == end), np.int64)
    count, state, wrong = _record_ends(data, delimiter, quote, end, state, ends)
    return ends[:count], int(state), int(wrong)


@jit
def _record_ends(data, delimiter, quote, end, state, ends):
    count, wrong = 0, -1
    for i in range(data.size):
        byte = data[i]
        is_line_end = byte in (LF, CR)
        if state in (QUOTED, LONG):
            if byte == quote:
                state += 2
            elif is_line_end:
                state = LONG
            continue
        if byte == quote and state != PLAIN and state != BLANKS:
            # The first byte of a field, or the second of two quotes.
            state = state - 2 if state > PLAIN else QUOTED
        elif byte == delimiter:
            state = FIELD
        elif is_line_end:
            state = RECORD
            if byte == end:
                ends[count] = i + 1
                count += 1
        elif byte in (_SPACE, _TAB) and state >= LONG_CLOSED:
            state = BLANKS
        else:
            if state >= LONG_CLOSED and wrong < 0:
                wrong = count
            state = PLAIN
    return count, state, wrong
