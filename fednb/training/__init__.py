"""How a client trains: step by step (`loop`). All clients in one step is what `fednb.gpu` does."""
