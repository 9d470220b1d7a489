"""Training steps: gradients of models."""

from __future__ import annotations
