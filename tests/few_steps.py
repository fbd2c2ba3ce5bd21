"""Imported by a kernel: from the third round of a federation on, a client takes two steps where it would take an epoch.

The rounds before are those that a notebook compares with loops of its own. A round is made of the same parts however many
steps its clients take, and nothing in a notebook depends on how well a network has learnt.
"""

import dataclasses

from fednb.federation import Federation

WHOLE_ROUNDS = 2
STEPS = 2
local_update = Federation.local_update


def short_local_update(self, client, received, t):
    """As the federation's, with few steps where the round is a late one."""
    if t >= WHOLE_ROUNDS:
        client.training = dataclasses.replace(client.training, local_steps=STEPS)
    return local_update(self, client, received, t)


Federation.local_update = short_local_update
