"""How the text of a CUDA kernel is put together and launched."""
