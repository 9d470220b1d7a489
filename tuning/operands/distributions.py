"""Index tensors for measurements: valid by construction, from a named distribution, seeded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tvm_scatter.errors import ScatterError

_Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def _permutation(generator: np.random.Generator, extent: int, count: int) -> np.ndarray:
    # More draws than destinations repeat whole permutations, so repeats are as rare as they can be.
    rounds = [generator.permutation(extent) for _ in range(-(-count // extent))]
    return np.concatenate(rounds)[:count] if rounds else np.empty(0, np.int64)


def _uniform(generator: np.random.Generator, extent: int, count: int) -> np.ndarray:
    return generator.integers(0, extent, count)


def _zipf(exponent: float) -> _Draw:
    def draw(generator: np.random.Generator, extent: int, count: int) -> np.ndarray:
        weights = 1.0 / np.arange(1, extent + 1, dtype=np.float64) ** exponent
        cumulative = np.cumsum(weights)
        rank = np.searchsorted(cumulative, generator.random(count) * cumulative[-1])
        # The frequent ones are spread over the extent, as they are in real vocabularies and graphs.
        return generator.permutation(extent)[np.minimum(rank, extent - 1)]

    return draw


def _half_on_one(generator: np.random.Generator, extent: int, count: int) -> np.ndarray:
    index = generator.integers(0, extent, count)
    index[generator.random(count) < 0.5] = extent // 2
    return index


def _all_on_one(generator: np.random.Generator, extent: int, count: int) -> np.ndarray:
    return np.full(count, extent // 2, np.int64)


DISTRIBUTIONS: dict[str, _Draw] = {
    "permutation": _permutation,
    "uniform": _uniform,
    "zipf(1.1)": _zipf(1.1),
    "zipf(1.2)": _zipf(1.2),
    "zipf(1.3)": _zipf(1.3),
    "half-on-one": _half_on_one,
    "all-on-one": _all_on_one,
}


def draw_indices(
    distribution: str, extent: int, count: int, dtype: str = "int64", seed: int = 0
) -> np.ndarray:
    """``count`` indices in [0, extent).

    Parameters
    ----------
    distribution : str
        A key of :data:`DISTRIBUTIONS`, or the path of an ``.npy`` file with recorded indices, which
        are repeated or cut to ``count``.
    extent, count : int
        The extent that is addressed and how many indices to draw.
    dtype : str
        An integer type that holds ``extent - 1``.
    seed : int
        Equal seeds give equal indices.

    Returns
    -------
    indices : numpy.ndarray
        Of shape (count,) and type ``dtype``.

    Raises
    ------
    ScatterError
        If the distribution is unknown, a file holds no valid indices, or the type is too narrow.
    """
    if extent < 1 and count:
        raise ScatterError(f"draw_indices: no index is valid for an extent of {extent}.")
    if extent - 1 > np.iinfo(dtype).max:
        raise ScatterError(f"draw_indices: {dtype} cannot address an extent of {extent}.")
    if distribution in DISTRIBUTIONS:
        generator = np.random.default_rng(seed)
        return DISTRIBUTIONS[distribution](generator, extent, count).astype(dtype)
    if distribution.endswith(".npy"):
        return _recorded(Path(distribution), extent, count).astype(dtype)
    raise ScatterError(
        f"draw_indices: unknown distribution {distribution!r}; it must be one of "
        f"{', '.join(DISTRIBUTIONS)} or an .npy file."
    )


def read_recorded(path: Path) -> np.ndarray:
    """The indices in an ``.npy`` file, in a row.

    Raises
    ------
    ScatterError
        If the file holds no integers, or is damaged.
    """
    try:
        if not path.is_file():
            raise ValueError("it is no regular file" if path.exists() else "there is no such file")
        # What is mapped is held to the size of the file, whatever the file says of its shape.
        recorded = np.lib.format.open_memmap(path, mode="r").ravel()
    except Exception as error:  # whatever NumPy makes of a damaged file
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ScatterError(
            f"draw_indices: cannot read {str(path)!r}: {said[0].rstrip('.')}."
        ) from error
    if not recorded.size or recorded.dtype.kind not in "iu":
        raise ScatterError(f"draw_indices: {str(path)!r} holds no integers.")
    return recorded


def _recorded(path: Path, extent: int, count: int) -> np.ndarray:
    recorded = read_recorded(path)
    low, high = int(recorded.min()), int(recorded.max())
    if low < 0 or high >= extent:
        raise ScatterError(
            f"draw_indices: {str(path)!r} holds indices from {low} to {high}, outside an extent of "
            f"{extent}."
        )
    return np.resize(recorded, count)
