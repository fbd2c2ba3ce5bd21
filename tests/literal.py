"""What the tests of the methods share: made-up vectors and prototypes, and losses in literal loops, number by number."""

import math

import numpy as np
import torch

from fednb.prototypes import pad_to


def vectors(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def prototypes_of(labels, capacity=None, dim=6, seed=1):
    """Random prototypes of these classes, padded as a training step sees them."""
    made = {
        "vectors": vectors(len(labels), dim, seed=seed),
        "labels": torch.tensor(labels, dtype=torch.long),
    }
    return pad_to(made, len(labels) if capacity is None else capacity)


def in_floats(prototypes):
    return {name: v.float() if v.is_floating_point() else v for name, v in prototypes.items()}


def known(prototypes):
    """The vector of each class as a list; padding is none."""
    pairs = zip(prototypes["labels"].tolist(), prototypes["vectors"].tolist(), strict=True)
    return {label: vector for label, vector in pairs if label >= 0}


def cosine(a, b, least=0.0):
    """Of two lists; a shorter vector than ``least`` counts as that long."""
    lengths = [max(math.sqrt(sum(v * v for v in vector)), least) for vector in (a, b)]
    return sum(p * q for p, q in zip(a, b, strict=True)) / lengths[0] / lengths[1]


def between_models(z, z_glob, z_prev, temperature):
    """MOON's equation 7, image by image."""
    losses = []
    for b, own in enumerate(z.tolist()):
        positive = math.exp(cosine(own, z_glob[b].tolist()) / temperature)
        negative = sum(math.exp(cosine(own, one[b].tolist()) / temperature) for one in z_prev)
        losses.append(-math.log(positive / (positive + negative)))
    return losses


def between_classes(z, y, prototypes, temperature=1.0):
    """FedProc's equation 4 and FedSSC's 3, image by image; one whose class has no prototype costs nothing."""
    losses = []
    for own, label in zip(z.tolist(), y.tolist(), strict=True):
        terms = {
            k: math.exp(cosine(own, vector) / temperature)
            for k, vector in known(prototypes).items()
        }
        losses.append(-math.log(terms[label] / sum(terms.values())) if label in terms else 0.0)
    return losses


def agree(ours, literal, z, rtol=1e-10):
    """Check a loss and its gradient in z against a literal loop and its central differences; return both of ours."""
    z = z.clone().requires_grad_()
    loss = ours(z)
    expected = literal(z.detach())
    np.testing.assert_allclose(
        loss.detach(), expected if loss.dim() else sum(expected), rtol=rtol, atol=1e-11
    )
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    numeric = np.zeros(z.shape)
    for place in np.ndindex(*z.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = z.detach().clone()
            moved[place] += step
            ends.append(sum(literal(moved)))
        numeric[place] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6)
    return loss.detach(), gradient
