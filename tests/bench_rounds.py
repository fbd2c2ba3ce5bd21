"""What the last clients of a round cost a GPU, where clients step together: a simulation, no GPU or data needed.

    python tests/bench_rounds.py [--fixed MS] [--each MS] [--seeds N] [--rounds N]

A step of k clients takes ``fixed + each * k`` milliseconds. Clients have batches as in MOON's splits of CIFAR-10 (ten
clients, Dir(0.5), batches of 64, ten epochs a round). It tells the milliseconds of training of a round of all seeds for

- one seed after the other, and all seeds in lockstep (a round begins when all seeds have ended theirs);
- clients in any order, or the longest first with the others put behind it, so that no step has more than so many clients;
- rounds that do not wait: a seed begins its next round while another one still trains.
"""

import argparse

import numpy as np

from fednb import partition

CLIENTS, BATCH, EPOCHS, BETA = 10, 64, 10, 0.5


def batches_of(seed):
    """How many steps each client takes in a round, as in a run with this seed; longest first."""
    labels = np.arange(50_000) % 10  # sizes depend on how many there are of each class alone
    rng = np.random.RandomState(seed)
    parts = partition.dirichlet(labels, CLIENTS, BETA, rng, min_size=10, balance=True)
    return sorted((EPOCHS * (len(part) // BATCH) for part in parts), reverse=True)


def lockstep(steps, cost):
    """Milliseconds where all begin together, and each ends when its own batches do."""
    steps = sorted(steps)
    total, before = 0.0, 0
    for ended, length in enumerate(steps):
        total += (length - before) * cost(len(steps) - ended)
        before = length
    return total


def packed(steps, width, cost):
    """Milliseconds with at most ``width`` at once: a client begins where another ends, longest first."""
    ends = [0] * min(width, len(steps))
    for length in sorted(steps, reverse=True):
        first = int(np.argmin(ends))
        ends[first] += length
    return lockstep(ends, cost)


def without_waiting(all_steps, rounds, cost):
    """Milliseconds of a round, where each seed begins its next round as soon as it ends one."""
    todo = [rounds] * len(all_steps)
    left = [list(steps) for steps in all_steps]
    total = 0.0
    while any(todo):
        running = [n for steps, more in zip(left, todo, strict=True) if more for n in steps if n]
        shortest = min(running)
        total += shortest * cost(len(running))
        for seed, steps in enumerate(left):
            if not todo[seed]:
                continue
            left[seed] = [max(0, n - shortest) for n in steps]
            if not any(left[seed]):
                todo[seed] -= 1
                left[seed] = list(all_steps[seed])
    return total / rounds


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", type=float, default=0.62)
    parser.add_argument("--each", type=float, default=0.048)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()

    def cost(k):
        return given.fixed + given.each * k

    all_steps = [batches_of(seed) for seed in range(given.seeds)]
    for seed, steps in enumerate(all_steps):
        print(f"seed {seed}: steps of a round {steps}")
    together = [n for steps in all_steps for n in steps]
    first = lockstep(together, cost)
    rows = {
        "one seed after the other": sum(lockstep(steps, cost) for steps in all_steps),
        "all seeds in lockstep, as it is": first,
    }
    for width in sorted({given.seeds, 2 * given.seeds, 4 * given.seeds, 6 * given.seeds}):
        rows[f"longest first, at most {width} at once"] = packed(together, width, cost)
    rows["rounds that do not wait for other seeds"] = without_waiting(all_steps, given.rounds, cost)
    # what no order can beat: every step with as many clients as there are
    all_at_once = given.fixed * max(together) + given.each * sum(together)
    rows["bound: the longest client never waits"] = all_at_once
    for name, value in rows.items():
        print(f"{name:45} {value / 1e3:7.3f} s a round of all seeds  {value / first - 1:+7.1%}")


if __name__ == "__main__":
    main()
