"""What records and printed numbers say, in numbers: cells of tables, leads, verdicts. How it is told: `fednb.reporting`."""
