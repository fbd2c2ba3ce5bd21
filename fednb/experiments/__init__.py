"""Settings, runs, their records, and sweeps of many runs."""
