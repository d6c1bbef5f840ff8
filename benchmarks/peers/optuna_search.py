"""A search by optuna, two processes by joblib, of scikit-learn's network on the digits.

``optuna_search.py TRIALS EPOCHS OUT`` writes the accuracy of the best trial, by its loss.
"""

import json
import sys
import warnings
from pathlib import Path

import joblib
import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def train(width: int, rate: float, epochs: int) -> tuple[float, float]:
    """Loss and accuracy of a network."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    x, y = load_digits(return_X_y=True)
    # As ``gradreduce data digits`` divides them.
    train_x, test_x, train_y, test_y = train_test_split(
        (x / 16).astype(np.float32), y, test_size=360, stratify=y, random_state=0
    )
    model = MLPClassifier(
        (width,),
        solver="sgd",
        momentum=0.0,
        nesterovs_momentum=False,
        alpha=0.0,
        batch_size=128,
        learning_rate_init=rate,
        max_iter=epochs,
        n_iter_no_change=10**6,
        tol=0.0,
        random_state=0,
    ).fit(train_x, train_y)
    probabilities = model.predict_proba(test_x)
    return log_loss(test_y, probabilities), float(np.mean(probabilities.argmax(1) == test_y))


def main() -> None:
    trials, epochs, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    accuracies = []
    with joblib.Parallel(2) as parallel:
        for _ in range(trials // 8):
            asked = [study.ask() for _ in range(8)]
            options = [
                (
                    each.suggest_int("width", 16, 128),
                    each.suggest_float("rate", 0.001, 1, log=True),
                    epochs,
                )
                for each in asked
            ]
            results = parallel(joblib.delayed(train)(*each) for each in options)
            for each, (loss, accuracy) in zip(asked, results, strict=True):
                study.tell(each, loss)
                accuracies.append(accuracy)
    out.write_text(json.dumps({"accuracy": accuracies[study.best_trial.number]}))


if __name__ == "__main__":
    main()
