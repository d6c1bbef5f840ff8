"""scikit-learn's handwritten digits: 1,797 images of 8 × 8 pixels with values from 0 to 16."""

import numpy as np

from mapreduce.data.importer import Rows, Source
from mapreduce.errors import UsageError

#: Rows of the test set; the other 1,437 are the training set.
TEST_ROWS = 360


def sources() -> dict[str, Source]:
    """The training and the test set, split by class with seed 0.

    Raises UsageError (scikit-learn, which brings the images, is not installed).
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise UsageError(
            "the digits come with scikit-learn, which is not installed: "
            "pip install 'gradreduce[datasets]'"
        ) from None
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images.astype(np.uint8), labels, test_size=TEST_ROWS, stratify=labels, random_state=0
    )
    return {
        name: Source(
            chunks=[Rows(features, classes)],
            shape=(8, 8),
            scale=1 / 16,
            bytes=features.nbytes,
            description={"format": "digits", "split": name},
        )
        for name, features, classes in (("train", train_x, train_y), ("test", test_x, test_y))
    }
