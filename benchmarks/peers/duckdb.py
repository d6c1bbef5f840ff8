"""DuckDB: lines are read as a table of one column.

Splitting at what is no word takes as long, and replacing single characters longer; ``read_text``
gives one row with the whole text, which took minutes.
"""

import sys

import duckdb

QUERY = r"""
COPY (
    SELECT word, count(*) FROM (
        SELECT unnest(regexp_extract_all(lower(line), '[\w'']+')) AS word
        FROM read_csv(
            $text, columns = {'line': 'VARCHAR'}, auto_detect = false, header = false,
            delim = '\x01', quote = '', escape = '', max_line_size = 10000000
        )
    ) GROUP BY word
) TO $out (FORMAT csv, DELIMITER '\t', HEADER false, QUOTE '', ESCAPE '')
"""


def main() -> None:
    text, out = sys.argv[1:]
    connection = duckdb.connect(config={"threads": 2, "preserve_insertion_order": False})
    connection.execute(QUERY, {"text": text, "out": out})


if __name__ == "__main__":
    main()
