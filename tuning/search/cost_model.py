"""A cost model: the time of a candidate, learned from every measurement at hand.

Gradient-boosted trees on features of problem and configuration, as in T. Chen et al., "Learning to
Optimize Tensor Programs", 2018. Knowledge of one problem carries over to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost

#: Fewer measurements say less than the order of the strategy's table does.
_FEWEST = 16
#: Trained again once so many times as much is known: a long run must not spend its time on it.
_GROWTH = 1.1
_ROUNDS = 120
_PARAMETERS = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.15,
    "subsample": 0.9,
    "min_child_weight": 1,
    "tree_method": "hist",
    "seed": 0,
    "nthread": 2,
}


class CostModel:
    """Learns the logarithm of times. It is trained when a prediction first needs it.

    Parameters
    ----------
    rounds : int
        How many trees.
    **parameters
        Parameters of xgboost that differ from those for a search.
    """

    def __init__(self, rounds: int = _ROUNDS, **parameters: float) -> None:
        self._rounds = rounds
        self._parameters = {**_PARAMETERS, **parameters}
        self._rows: list[np.ndarray[Any, Any]] = []
        self._times: list[float] = []
        self._booster: Any = None
        self._trained_on = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: np.ndarray[Any, Any], microseconds: float) -> None:
        """Learn from a measurement."""
        self._rows.append(row)
        self._times.append(float(np.log(microseconds)))

    def predict(
        self, rows: Sequence[np.ndarray[Any, Any]] | np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any] | None:
        """Logarithms of microseconds; ``None`` while there are too few measurements."""
        if len(self._rows) < _FEWEST:
            return None
        if self._booster is None or len(self._rows) > _GROWTH * self._trained_on:
            self._trained_on = len(self._rows)
            known = xgboost.DMatrix(np.stack(self._rows), np.array(self._times))
            self._booster = xgboost.train(self._parameters, known, self._rounds)
        predicted: np.ndarray[Any, Any] = self._booster.predict(xgboost.DMatrix(np.asarray(rows)))
        return predicted
