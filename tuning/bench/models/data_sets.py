"""Sizes of graphs that people train on: many have features that no vector divides."""

from __future__ import annotations

from typing import NamedTuple


class DataSet(NamedTuple):
    """How large the graph of a data set is; its edges are drawn.

    Attributes
    ----------
    features : tuple of int
        How many features nodes have: what they begin with, what is hidden, or their classes.
    """

    name: str
    nodes: int
    edges: int
    features: tuple[int, ...]


#: As the documentation of torch_geometric's data sets and the Open Graph Benchmark have them; of
#: molecules a batch of 128 with 25.5 atoms and 27.5 bonds each, and what its baselines hide.
DATA_SETS = (
    DataSet("Cora", 2708, 10_556, (1433, 16, 7)),
    DataSet("CiteSeer", 3327, 9104, (3703, 6)),
    DataSet("PubMed", 19_717, 88_648, (500, 3)),
    DataSet("Flickr", 89_250, 899_756, (500, 7)),
    DataSet("PPI", 44_906, 1_226_368, (50, 121)),
    DataSet("Yelp", 716_847, 13_954_819, (100,)),
    DataSet("ogbn-arxiv", 169_343, 1_166_243, (256, 40)),
    DataSet("ogbn-proteins", 132_534, 39_561_252, (8,)),
    DataSet("ogbg-molhiv", 3264, 7040, (300,)),
)
#: What is computed of each, of which type, and how destinations are distributed.
OF_DATA_SETS = (
    ("sum", "float32", ("uniform", "zipf(1.2)")),
    ("weighted sum", "bfloat16", ("uniform", "zipf(1.2)")),
    ("max", "float32", ("uniform",)),
)
