"""Where measurements are kept, and what they came to."""
