"""Lets TVM's own tuner, MetaSchedule, run on models that scatter.

Functions that are scheduled already are measured as they are, and functions that read or write by
index are measured with valid indices.
"""

from .install import install_tuner, uninstall_tuner

__all__ = ["install_tuner", "uninstall_tuner"]
