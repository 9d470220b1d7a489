"""Programs behind single figures in the documentation; nothing imports them."""
