"""TVM's own tuner, MetaSchedule, over models that scatter.

It takes functions that are scheduled already as they are, and measures functions that read by
index with indices that are valid.
"""

from .install import install_tuner, uninstall_tuner

__all__ = ["install_tuner", "uninstall_tuner"]
