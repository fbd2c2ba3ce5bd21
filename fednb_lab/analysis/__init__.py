"""What records and printed numbers say, as values; `fednb_lab.reporting` makes words of them."""
