"""What is the product of two matrices that no machine holds?

builds on  page_rank.py
adds       blocks: a reducer multiplies what it has been sent with NumPy
next       naive_bayes.py
run me     python jobs/matrix_product.py --rows 4 --columns 4 --block 2 \\
               $(python -m jobs.inputs matrices)

A larger block is sent less often and takes more memory: each element of A goes to as many reducers
as there are blocks of columns, each of B to as many as there are blocks of rows.
"""

from collections import defaultdict

import numpy as np

from mapreduce.job import Job


class MatrixProduct(Job):
    """Lines are A or B, row, column and element, with TABs between; zeros may be left out."""

    def configure_args(self):
        """The shape of the product, and of the blocks it is cut into."""
        super().configure_args()
        for name in ("--rows", "--columns", "--block"):
            self.add_passthru_arg(name, type=int, required=True)

    def mapper(self, _, line):
        """An element goes to all blocks of the product that it is a part of."""
        matrix, row, column, element = line.split("\t")
        i, j, size = int(row), int(column), self.options.block
        if matrix == "A":
            for block in range(-(-self.options.columns // size)):
                yield (i // size, block), ("A", j, i % size, float(element))
        else:
            for block in range(-(-self.options.rows // size)):
                yield (block, j // size), ("B", i, j % size, float(element))

    def reducer(self, block, elements):
        """Where the inner indices of both meet. Zeros are only left out if whole lines are."""
        size = self.options.block
        columns: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(size))
        rows: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(size))
        for name, inner, place, element in elements:
            (columns if name == "A" else rows)[inner][place] = element
        # Sorted, since floats are added in some order: not in that of arrival.
        inner = sorted(columns.keys() & rows.keys())
        if inner:
            product = np.stack([columns[k] for k in inner], 1) @ [rows[k] for k in inner]
            for (i, j), element in np.ndenumerate(product):
                if element:
                    yield [block[0] * size + i, block[1] * size + j], float(element)


if __name__ == "__main__":
    MatrixProduct.run()
