"""scikit-learn: LogisticRegression by L-BFGS, or one epoch of SGDClassifier."""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, SGDClassifier

from benchmarks.sparse import L2, PASSES, log_loss


def main() -> None:
    path, task = Path(sys.argv[1]), sys.argv[2]
    with np.load(path / "rows.npz") as found:
        rows = {name: found[name] for name in found.files}
    labels = rows["labels"]
    shape = len(labels), int(rows["columns"])
    features = csr_array((rows["values"], rows["indices"], rows["indptr"]), shape)
    if task == "online":
        model = SGDClassifier(loss="log_loss", alpha=L2, max_iter=1, tol=None, random_state=0)
    else:
        model = LogisticRegression(C=1 / (L2 * len(labels)), max_iter=PASSES, tol=1e-12)
    # It warns that it has not converged.
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    model.fit(features, labels)
    seconds = time.perf_counter() - started
    loss = log_loss(model.decision_function(features), labels)
    print(json.dumps({"seconds": seconds, "loss": loss}))


if __name__ == "__main__":
    main()
