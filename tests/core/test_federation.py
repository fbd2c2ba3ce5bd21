"""The federation: local SGD, averaging, seeding, counting and evaluation."""

import dataclasses
import random
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fednb.papers.fedproto import FedRep
from fednb.papers.foundations import SOLO, SCAFFOLDVariants
from small import random_states

from fednb import augment, federation, models, seeds
from fednb.data import Augmentation
from fednb.evaluation import evaluate
from fednb.federation import (
    Client,
    FedAvg,
    Federation,
    Phase,
    average,
)
from fednb.messages import message_size


@dataclass
class OnlyClassifier(FedAvg):
    """Trains the output layer and nothing else."""

    def plan(self, client, t):
        return [Phase(2, lambda name: name.startswith("classifier"))]


# --- local training


@pytest.mark.parametrize("augmentation", [Augmentation(), Augmentation(pad=1, flip=True)])
def test_one_client_is_central_sgd_bit_for_bit(
    federate, make_dataset, rounds, identical, augmentation
):
    fed = federate(sizes=(23,), dataset=make_dataset(images=23, augmentation=augmentation))
    model = fed.build_model().to(memory_format=torch.channels_last).train()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for t in range(3):
        rng = seeds.generator(0, "batches", t, 0)
        sgd = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, fused=True)
        for _ in range(2):
            order = torch.from_numpy(rng.permutation(23)[:20])
            draws = augment.draw(20, augmentation, rng)
            pixels = augment.gather(fed.images.train, order, draws, augmentation)
            for i in range(0, 20, 4):
                x = augment.normalise(pixels[i : i + 4], *fed.images.constants)
                loss = F.cross_entropy(model(x).logits, fed.images.labels[order[i : i + 4]])
                sgd.zero_grad()
                loss.backward()
                sgd.step()
    torch.set_num_threads(threads)
    assert identical(rounds(fed, 3), dict(model.state_dict()))


@pytest.mark.parametrize(
    ("keep_last", "second", "steps"), [(None, [4, 4], 4), (False, [4, 4], 4), (True, [4, 4, 1], 6)]
)
def test_the_incomplete_batch_is_dropped_but_a_lone_one_is_kept(
    federate, identical, rounds, keep_last, second, steps
):
    fed = federate(sizes=(20, 9, 3, 4), keep_last=keep_last)
    rng = np.random.default_rng(0)
    sizes = [[len(y) for _, y in c.batches(rng)] for c in fed.clients]
    assert sizes == [[4] * 5, second, [3], [4]]
    model = rounds(fed)
    assert [c.steps for c in fed.clients] == [10, steps, 2, 2]
    assert identical(model, rounds(federate(sizes=(20, 9, 3, 4)))) == (not keep_last)


def test_a_client_takes_no_more_steps_than_allowed(federate, identical, rounds):
    fed = federate(local_steps=7, sizes=(20, 9, 3, 4))  # of 10, 4, 2 and 2 in two epochs
    assert not identical(rounds(fed), rounds(federate(sizes=(20, 9, 3, 4))))
    assert [c.steps for c in fed.clients] == [7, 4, 2, 2]
    whole = federate(sizes=(20,), local_epochs=1)
    assert identical(rounds(whole), rounds(federate(sizes=(20,), local_epochs=3, local_steps=5)))
    two_phases = federate(FedRep(), sizes=(20,), local_steps=3)
    rounds(two_phases)
    assert two_phases.clients[0].steps == 6  # counted anew in each phase


def test_rounds_and_clients_have_different_orders(federate, make_dataset):
    class Noting(FedAvg):
        def loss(self, model, x, y, context):
            seen.append(x.sum().item())
            return super().loss(model, x, y, context)

    seen, data = [], make_dataset(images=8)
    # two clients with the same images
    twice = {"images": data.images.repeat(2, 1, 1, 1), "labels": data.labels.repeat(2)}
    same = dataclasses.replace(data, **twice)
    fed = federate(Noting(), sizes=(8, 8), dataset=same, batch_size=1)
    for _ in range(2):
        fed.run_round()
    orders = {tuple(seen[i : i + 8]) for i in range(0, len(seen), 8)}
    assert len(orders) == len(seen) / 8 == 2 * 2 * 2  # rounds, clients, epochs
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_neither_workers_nor_the_order_of_clients_matter(federate, identical, rounds, monkeypatch):
    def run(workers):
        fed = federate(SCAFFOLDVariants(), workers=workers, participation=0.5)
        rounds(fed, 3)
        history = [{n: v for n, v in e.items() if "seconds" not in n} for e in fed.history]
        return fed.checkpoint() | {"history": history}

    first, before = run(1), torch.get_num_threads()
    assert first["server"]["seed"] == 0  # for the server's draws
    assert identical(first, run(2)) and identical(first, run(3))
    assert torch.get_num_threads() == before
    plain = Federation.map

    def backwards(fed, function, *items):
        return plain(fed, function, *(one[::-1] for one in items))[::-1]

    monkeypatch.setattr(Federation, "map", backwards)
    assert identical(first, run(1))


def test_the_global_generators_are_neither_read_nor_moved(
    federate, identical, rounds, make_dataset
):
    data = make_dataset(images=60, shape=(1, 28, 28), num_classes=10)
    network = partial(models.build, "mnist-cnn", 10, channels=1, side=28)  # it has dropout

    def run(noise, seed=0):
        random.seed(noise), np.random.seed(noise), torch.manual_seed(noise)
        before = random_states()
        model = rounds(federate(participation=0.5, dataset=data, build_model=network, seed=seed), 2)
        assert random_states() == before
        return model

    assert identical(run(1), run(2))
    assert not identical(run(1), run(1, seed=1))


@pytest.mark.parametrize("method", [OnlyClassifier(), FedRep()])
def test_a_frozen_phase_moves_neither_parameters_nor_batch_norm_buffers(
    federate, method, monkeypatch
):
    fed = federate(method)
    states = [fed.initial[None]]
    plain = federation.sgd_steps

    def steps(method, client, context, batches):
        plain(method, client, context, batches)
        states.append(client.model.state())

    monkeypatch.setattr(federation, "sgd_steps", steps)
    fed.exchange(fed.server, fed.clients[:1], 0)
    for before, after, frozen in zip(states, states[1:], ("encoder", "classifier"), strict=False):
        for name in before:
            assert torch.equal(before[name], after[name]) == name.startswith(frozen), name


# --- averaging


def test_average_by_hand():
    a = {"w": torch.tensor([1.0, 2.0]), "counter": torch.tensor(3)}
    b = {"w": torch.tensor([5.0, -2.0]), "counter": torch.tensor(10)}
    mean = average([a, b], [1, 3])
    assert mean["w"].tolist() == [4.0, -1.0]
    assert mean["counter"].item() == 8  # 8.25 rounded
    assert mean["counter"].dtype == torch.int64
    assert average([a, b], [3, 1])["counter"].item() == 5  # 4.75 rounded
    assert average([a, b], [0.25, 0.75])["w"].tolist() == [4.0, -1.0]
    assert a["w"].tolist() == [1.0, 2.0]  # what was averaged is as before


def test_batch_norm_buffers_are_averaged_with_sample_weights(federate):
    fed = federate(sizes=(20, 10, 10))
    uploads = fed.exchange(fed.server, fed.clients, 0)
    mean = fed.method.aggregate(fed.server, uploads, 0)["model"]
    for name in ("encoder.1.running_mean", "encoder.1.running_var", "encoder.4.weight"):
        a, b, c = (u["model"][name].double() for u in uploads)
        torch.testing.assert_close(mean[name].double(), a / 2 + b / 4 + c / 4, rtol=1e-6, atol=1e-7)
        assert not torch.equal(mean[name], fed.initial[None][name])
    assert mean["encoder.1.num_batches_tracked"] == 7  # 10, 4 and 4 steps


# --- sampling


def test_participation_samples_that_many_and_others_each_round(federate):
    def sampled(participation, seed=0):
        fed = federate(sizes=(4,) * 10, participation=participation, seed=seed)
        return [[c.id for c in fed.sample(t)] for t in range(50)]

    rounds = sampled(0.3)
    assert all(len(set(ids)) == 3 and ids == sorted(ids) for ids in rounds)
    assert len(set(map(tuple, rounds))) > 20
    assert {i for ids in rounds for i in ids} == set(range(10))
    assert rounds == sampled(0.3) != sampled(0.3, seed=1)
    assert {len(ids) for ids in sampled(0.01)} == {1}


# --- what crosses


def test_traffic_is_the_models_size_counted_by_hand(federate):
    # convolution, BatchNorm and its buffers, two linear layers
    numbers = 27 + (3 + 3) + (3 + 3 + 1) + (108 * 4 + 4) + (4 * 3 + 3)
    fed = federate(sizes=(8,) * 4, participation=0.5)
    entry = fed.run_round()
    assert fed.traffic == {
        "down": {"model": (2 * numbers, 2 * (4 * numbers + 4))},  # the counter has 8 bytes
        "up": {"model": (2 * numbers, 2 * (4 * numbers + 4)), "num_samples": (2, 16)},
    }
    assert entry["down_numbers"] == 2 * numbers
    assert entry["up_numbers"] == 2 * numbers + 2
    assert entry["up_bytes"] == 2 * (4 * numbers + 4) + 16
    assert fed.run_round()["down_numbers"] == 2 * numbers  # each round counts anew


def test_a_message_is_tensors_and_dicts_of_tensors():
    message = {
        "a": torch.zeros(2, 3),
        "b": {"c": torch.zeros(4, dtype=torch.int64), "d": {"e": torch.tensor(1.0)}},
        "f": {},
    }
    assert message_size(message) == {"a": (6, 24), "b": (5, 36), "f": (0, 0)}
    for value in (1, 1.5, "text", None, np.zeros(2)):
        with pytest.raises(TypeError, match="a holds something else"):
            message_size({"a": {"b": value}})


# --- evaluation


def hits(model_state, net, fed, classes=(0, 1, 2)):
    """Which test images a network gets right with these classes to choose from, computed plainly."""
    net.load_state_dict(model_state)
    x = (fed.dataset.test_images.float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        logits = net.eval()(x).logits
    chosen = [max(classes, key=lambda k: row[k]) for row in logits.tolist()]
    return torch.tensor(chosen) == fed.dataset.test_labels


def models_of(fed):
    """The model of each client: its own, or the server's."""
    return [client.memory.get("model", fed.server["model"]) for client in fed.clients]


def percent(right):
    return 100 * right.float().mean().item()


SOME = np.array([2, 3, 5, 7, 30, 34, 39])


@pytest.mark.parametrize("tests", ["all", "some", "own"])
@pytest.mark.parametrize("method", [FedAvg(), SOLO()])
def test_accuracy_of_global_and_of_personal_models_on_shared_and_on_own_test_images(
    federate, batch_norm_net, method, tests
):
    own = [np.arange(10), np.arange(5, 30), np.arange(30, 40), np.array([7])]
    which = {"some": {"test_index": SOME}, "own": {"test_parts": own}, "all": {}}[tests]
    fed = federate(method, workers=3, **which)
    entry = fed.run_round()
    index = {"some": [SOME] * 4, "own": own, "all": [np.arange(40)] * 4}[tests]
    pairs = zip(models_of(fed), index, strict=True)
    by_hand = [percent(hits(state, batch_norm_net(), fed)[part]) for state, part in pairs]
    assert entry["accuracy"] == pytest.approx(np.mean(by_hand))
    if tests == "own" or method.personal:
        assert len(set(by_hand)) > 1
        assert entry["clients"] == pytest.approx(by_hand)
        assert entry["accuracy_std"] == pytest.approx(np.std(by_hand), abs=1e-4)
    else:
        assert "clients" not in entry
    assert ("accuracy/own mix" in entry) == (tests != "own")


@pytest.mark.parametrize("method", [FedAvg(), SOLO()])
def test_clients_with_their_own_test_images_are_also_judged_among_their_classes(
    ragged, batch_norm_net, method
):
    classes_of = ([0, 1], [2, 0], [2], [0, 1, 2])
    parts = [np.arange(10 * i, 10 * i + 10) for i in range(4)]
    shared, fed = (ragged(method, classes_of, lr=1e-4, test_parts=own) for own in (None, parts))
    assert not any("local classes" in name for name in shared.run_round())
    entry = fed.run_round()
    net, own = batch_norm_net(), zip(models_of(fed), classes_of, parts, strict=True)
    by_hand = [percent(hits(state, net, fed, classes)[part]) for state, classes, part in own]
    assert entry["clients/local classes"] == pytest.approx(by_hand)
    assert entry["accuracy/local classes"] == pytest.approx(np.mean(by_hand))
    assert entry["accuracy_std/local classes"] == pytest.approx(np.std(by_hand), abs=1e-4)
    # one class: no choice
    assert by_hand[2] == pytest.approx(percent(fed.dataset.test_labels[parts[2]] == 2))
    # all classes: nothing to rule out
    assert entry["clients/local classes"][3] == entry["clients"][3]
    assert entry["clients/local classes"] != entry["clients"]


@pytest.mark.parametrize("method", [FedAvg(), SOLO()])
def test_groups_of_test_images_count_equally(federate, make_dataset, batch_norm_net, method):
    groups = torch.tensor([0] * 33 + [1] * 7)
    dataset = make_dataset(test_groups=groups, group_names=("big", "small"))
    fed = federate(method, dataset=dataset, test_index=SOME)
    entry = fed.run_round()
    right = torch.stack([hits(state, batch_norm_net(), fed).float() for state in models_of(fed)])
    big, small = (100 * right[:, SOME[groups[SOME] == g]].mean(1) for g in (0, 1))
    means = {"big": big.mean().item(), "small": small.mean().item()}
    assert entry["groups"] == pytest.approx(means)
    assert entry["accuracy"] == pytest.approx(sum(entry["groups"].values()) / 2)
    if method.personal:
        assert entry["clients"] == pytest.approx(((big + small) / 2).tolist())


@pytest.mark.parametrize("method", [FedAvg(), SOLO()])
def test_accuracy_on_a_clients_own_mix_of_classes(ragged, batch_norm_net, method):
    """Against a loop over clients, classes and images; class 2 is not in the mix of client 0, class 0 not in client 2's."""
    fed = ragged(method, ([0, 1, 1], [2, 0], [2, 2, 2, 1], [0, 1, 2]))
    entry = fed.run_round()
    labels, expected = fed.dataset.test_labels, []
    for client, state in zip(fed.clients, models_of(fed), strict=True):
        right, own = hits(state, batch_norm_net(), fed), client.labels.tolist()
        shares = [own.count(k) / len(own) for k in range(3)]
        expected.append(sum(shares[k] * percent(right[labels == k]) for k in range(3)))
    assert len({round(value, 3) for value in expected}) > 2
    assert entry["clients/own mix"] == pytest.approx(expected)
    assert entry["accuracy/own mix"] == pytest.approx(np.mean(expected))
    assert entry["accuracy_std/own mix"] == pytest.approx(np.std(expected), abs=1e-4)


def test_a_client_without_an_image_that_counts_is_left_out_of_the_mean(ragged, batch_norm_net):
    fed = ragged(FedAvg(), ([0, 1, 1], [2, 2], [0, 0, 1, 1], [0, 1, 2]))
    fed.test_index = torch.nonzero(fed.images.test_labels < 2).flatten().numpy()  # none of class 2
    entry = fed.run_round()
    first, without, *others = entry["clients/own mix"]
    assert without is None
    known = [first, *others]
    assert entry["clients_counted/own mix"] == len(known) == 3
    assert entry["accuracy/own mix"] == pytest.approx(np.mean(known))
    assert entry["accuracy_std/own mix"] == pytest.approx(np.std(known))
    right = hits(fed.server["model"], batch_norm_net(), fed)
    labels = fed.dataset.test_labels
    by_hand = [percent(right[labels == k]) for k in (0, 1)]
    assert known[2] == pytest.approx(np.mean(by_hand))
    fed.test_index = None
    assert "clients_counted/own mix" not in evaluate(fed)


@pytest.mark.parametrize("method", [SOLO(), SCAFFOLDVariants(niid_bench=True)])
def test_evaluation_changes_nothing_whether_it_is_made_every_round_seldom_or_twice(
    federate, identical, method
):
    often = (1, 2, 1)
    given = {"num_rounds": 5, "local_epochs": 1}
    always, seldom, twice = (federate(method, evaluate_every=n, **given) for n in often)
    for _ in range(6):
        always.run_round(), seldom.run_round(), twice.run_round()
        assert identical(evaluate(twice), evaluate(twice))
    # 5 is the last one planned
    assert [entry["round"] for entry in seldom.history if "accuracy" in entry] == [2, 4, 5, 6]
    ends = [fed.checkpoint() | {"history": None} for fed in (always, seldom, twice)]
    assert identical(ends[0], ends[1]) and identical(ends[0], ends[2])
    for full, entry in zip(always.history, seldom.history, strict=True):
        assert all(full[name] == value for name, value in entry.items() if "seconds" not in name)
        assert ("accuracy" in entry) == (full.keys() == entry.keys())


# --- what a round reports


def test_loss_terms_are_means_over_all_steps_of_the_round(federate):
    class Numbered(FedAvg):
        def prepare(self, client, received, t):
            return {"id": torch.tensor(float(client.id)), "t": torch.tensor(float(t))}

        def loss(self, model, x, y, context):
            return super().loss(model, x, y, context) | {"id": context["id"], "t": context["t"]}

    fed = federate(Numbered(), sizes=(20, 8, 4))
    entries = [fed.run_round() for _ in range(2)]
    assert [c.steps for c in fed.clients] == [10, 4, 2]
    assert [e["loss/id"] for e in entries] == pytest.approx([(4 * 1 + 2 * 2) / 16] * 2)
    assert [e["loss/t"] for e in entries] == [0, 1]


def test_divergence_is_seen(federate):
    entry = federate(lr=1e30).run_round()
    assert entry["finite"] is False and "accuracy" not in entry
    assert federate().run_round()["finite"] is True


def test_dropout_has_masks_of_its_own_for_each_client_and_round(federate, monkeypatch):
    drawn = []
    monkeypatch.setattr(Client, "seed_dropout", lambda client, seed: drawn.append(seed))
    for seed in (0, 0, 1):
        fed = federate(seed=seed)
        for _ in range(3):
            fed.run_round()
    assert drawn[:12] == drawn[12:24]
    assert len(set(drawn)) == 2 * 3 * 4
