"""The trainer for GPUs: all clients take each step together."""
