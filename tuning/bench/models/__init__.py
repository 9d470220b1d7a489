"""The benchmark of models: gather, message and scatter as users write them, and whole layers."""
