"""What is measured: problems, and candidates to compute them."""
