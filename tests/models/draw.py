"""Draw models that were not tried before: ``cd tests && python -m models.draw``."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path

from . import libraries  # noqa: F401

#: Drawn once; another seed draws other models.
SEED = 17
#: How many names are printed of each library, in the order drawn.
SHOWN = 40
_TESTS = Path(__file__).parent.parent


def main() -> None:
    """Print the names of each library in the order drawn."""
    for library, names in candidates().items():
        print(f"{library}, {len(names)} names: {', '.join(drawn(names)[:SHOWN])}")


def drawn(names: Iterable[str]) -> list[str]:
    """Names in an order that only the seed decides, without those that were tried before."""
    shuffled = sorted(set(names))
    random.Random(SEED).shuffle(shuffled)
    tried = _words_of_the_tests()
    return [name for name in shuffled if _plain(name) not in tried]


def candidates() -> dict[str, list[str]]:
    """The names of each library."""
    return {
        "torch_geometric": _torch_geometric(),
        "transformers": _transformers(),
        "torchvision": _torchvision(),
    }


def _torch_geometric() -> list[str]:
    from torch_geometric.nn import aggr, conv, models, pool

    return [name for part in (conv, pool, aggr, models) for name in part.__all__]


def _transformers() -> list[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def _torchvision() -> list[str]:
    from torchvision import models, ops

    return [*models.list_models(), *ops.__all__]


def _words_of_the_tests() -> set[str]:
    """All words of the older tests and of a page of the docs, as names are written."""
    files = [each for each in _TESTS.rglob("*.py") if each.stem not in ("draw", "second_look")]
    files.append(_TESTS.parent / "docs" / "exporting.md")
    words = re.findall(r"[\w-]+", "\n".join(file.read_text() for file in files))
    return {_plain(word.removesuffix("Config")) for word in words}


def _plain(name: str) -> str:
    return re.sub(r"\W|_", "", name).lower()


if __name__ == "__main__":
    main()
