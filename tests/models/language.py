"""Language models and mixtures of experts, from transformers."""

from __future__ import annotations
