"""pyarrow: blocks of lines, two at a time; its kernels leave Python's lock to the other thread."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv


def blocks(text: str) -> Iterator[pa.Array]:
    """Lines of the text, some MB at a time."""
    reader = csv.open_csv(
        text,
        csv.ReadOptions(column_names=["line"], block_size=1 << 22),
        csv.ParseOptions(delimiter="\x01", quote_char=False),
        csv.ConvertOptions(column_types={"line": pa.string()}),
    )
    for batch in reader:
        yield batch.column(0)


def count(lines: pa.Array) -> pa.Table:
    """How often each word occurs in a block."""
    words = pc.split_pattern_regex(pc.ascii_lower(lines), r"[^\w']+").flatten()
    found = words.value_counts()
    return pa.table({"word": found.field("values"), "count": found.field("counts")})


def main() -> None:
    text, out = sys.argv[1:]
    pa.set_cpu_count(2)
    with ThreadPoolExecutor(2) as threads:
        counted = pa.concat_tables(list(threads.map(count, blocks(text))))
    counts = counted.group_by("word").aggregate([("count", "sum")])
    counts = counts.filter(pc.not_equal(counts["word"], ""))
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(counts, out, options)


if __name__ == "__main__":
    main()
