"""Default schedules for GPUs that take the place of TVM's."""

from __future__ import annotations

from .gather import Gather

__all__ = ["Gather"]
