"""What records and printed numbers say, as values; `fednb.reporting` makes words of them."""
