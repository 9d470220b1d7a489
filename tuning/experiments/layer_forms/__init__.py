"""Layers as libraries compute them, at the sizes that they are used at."""

from __future__ import annotations

from collections.abc import Mapping

from .graphs import GRAPHS
from .halves import HALVES
from .images import IMAGES
from .language import LANGUAGE
from .layer import Draw, Layer, Make
from .points import POINTS
from .tables import TABLES

LAYERS: Mapping[str, Make] = {**GRAPHS, **POINTS, **IMAGES, **LANGUAGE, **TABLES, **HALVES}

__all__ = ["LAYERS", "Draw", "Layer", "Make"]
