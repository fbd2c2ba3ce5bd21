"""Training by a captured step: the same numbers as the plain loop, for every method; recorded as a graph where CUDA is."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from fednb.papers.fedplcc import METHODS as LAST
from fednb.papers.fedproto import METHODS as FEDPROTO
from fednb.papers.fedssc import METHODS as FEDSSC
from torch.utils._python_dispatch import TorchDispatchMode

from fednb import models
from fednb.data import Augmentation
from fednb.experiments import cuda_graphs as captured
from fednb.federation import FedAvg, Phase, train_eagerly


@dataclass
class Decayed(FedAvg):
    """A learning rate that falls from round to round; the first client does without training in the second."""

    def prepare(self, client, received, t):
        return {"lr": torch.tensor(0.02 / (t + 1))}

    def plan(self, client, t):
        return [Phase(0 if (client.id, t) == (0, 1) else 1)]

    def optimizer(self, client, parameters, given):
        return torch.optim.SGD(parameters, float(given["lr"]), momentum=0.9, fused=True)

    def loss(self, model, x, y, given):
        return {name: value * given["lr"].to(x.device) * 50 for name, value in super().loss(model, x, y, given).items()}


METHODS = FEDSSC | FEDPROTO | LAST | {"Decayed": Decayed}
OPTIONS = {"FCCL+": {"public_size": 8, "public_batch": 4}, "FedSSC": {"min_images": 1}, "FedPLVM": {"lam": 1.0}}
VARIANTS = {
    "two-stage FedProc": ("FedProc", {"alpha_schedule": "two-stage"}),
    "two-stage FedSSC": ("FedSSC", {"variant": "two-stage", "min_images": 1}),
    "MOON with two previous models": ("MOON", {"negatives": 2}),
    "SCAFFOLD of NIID-Bench": ("SCAFFOLD", {"niid_bench": True}),
    "FedProto with own start": ("FedProto", {"own_start": True}),
}


def ends_of(federation, rounds):
    for _ in range(rounds):
        federation.run_round()
    entries = [{k: v for k, v in entry.items() if "seconds" not in k} for entry in federation.history]
    return federation.checkpoint() | {"history": entries}


def trainers_of(federation):
    recordings = getattr(federation.train, "recordings", {})
    return [trainer for of_network in recordings.values() for trainer in of_network.trainers.values()]


@pytest.fixture
def pair(federate, make_dataset):
    """Two equal federations with dropout, augmentation and a client smaller than a batch; one trains by captured steps."""

    def make(name, device="cpu", rounds=3, **given):
        method, options = VARIANTS.get(name, (name, OPTIONS.get(name, {})))
        data = make_dataset(
            images=66, shape=(3, 28, 28), num_classes=4, augmentation=Augmentation(pad=2, flip=True, rotation=10)
        )
        precision = given.pop("precision", "float32")
        build = partial(models.build, "mnist-cnn", 4, channels=3, side=28, projection_head=False, precision=precision)
        shared = {
            "dataset": data,
            "build_model": build,
            "sizes": (30, 19, 14, 3),
            "batch_size": 4,
            "lr": 0.02,
            "device": device,
        }
        shared |= {"num_rounds": rounds} | given
        return [
            federate(METHODS[method](**options), train=train, **shared) for train in (train_eagerly, captured.Recorder())
        ]

    return make


@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_captured_steps_give_the_numbers_of_the_plain_loop_for_every_method(pair, identical, name):
    plain, replayed = pair(name)
    assert identical(ends_of(plain, 3), ends_of(replayed, 3))
    assert not trainers_of(plain) and (bool(trainers_of(replayed)) != (name == "SCAFFOLD of NIID-Bench"))


OTHERWISE = [
    {"keep_last": True},
    {"local_steps": 3},
    {"keep_last": True, "local_steps": 7},
    {"workers": 3},
    {"precision": "bf16"},
]


@pytest.mark.parametrize("given", OTHERWISE)
def test_incomplete_batches_limits_several_workers_and_bfloat16_are_the_same_too(pair, identical, given):
    plain, replayed = pair("FedAvg", **given)
    assert identical(ends_of(plain, 2), ends_of(replayed, 2))


def test_batch_norm_buffers_are_not_moved_by_the_recording(federate, identical):
    plain, replayed = (federate(FedAvg(), train=train) for train in (train_eagerly, captured.Recorder()))
    assert identical(ends_of(plain, 2), ends_of(replayed, 2))


def test_a_step_is_recorded_once_per_network_phase_and_batch_size(pair):
    _, replayed = pair("FedAvg")
    ends_of(replayed, 3)
    (trainer,) = trainers_of(replayed)
    assert sorted(trainer._replays) == [3, 4]  # the small client has three images
    _, replayed = pair("FedRep")
    ends_of(replayed, 3)
    assert len(trainers_of(replayed)) == 2  # head and body
    _, replayed = pair("MOON")
    ends_of(replayed, 3)
    assert len(trainers_of(replayed)) == 2  # the first round has no previous model


def test_recordings_do_not_pile_up(pair, identical, monkeypatch):
    monkeypatch.setattr(captured, "KEPT", 2)
    plain, replayed = pair("Decayed")
    assert identical(ends_of(plain, 4), ends_of(replayed, 4))
    assert len(trainers_of(replayed)) == 2
    assert identical(ends_of(plain, 1), ends_of(replayed, 1))
    assert len(trainers_of(replayed)) == 1  # when there were too many, all others went


def test_what_cannot_be_captured_is_trained_by_the_plain_loop():
    weight = [torch.nn.Parameter(torch.zeros(2))]
    sgd = torch.optim.SGD(weight, 0.1, momentum=0.9)
    assert captured.can_be_captured(sgd)
    assert not captured.can_be_captured(torch.optim.SGD(weight, 0.1, momentum=0.9, dampening=0.5))
    assert not captured.can_be_captured(torch.optim.Adam(weight))
    sgd.register_step_post_hook(lambda *_: None)
    assert not captured.can_be_captured(sgd)


class NoWaiting(TorchDispatchMode):
    """Refuses what makes a GPU's host wait, or brings numbers of the host into a recording."""

    REFUSED = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "_unique2", "equal", "lift_fresh")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in self.REFUSED, f"{name} waits for the device"
        # a mask as an index has as many results as it has hits
        if name in ("index", "index_put_", "_index_put_impl_"):
            assert not any(index is not None and index.dtype == torch.bool for index in args[1])
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_nothing_in_a_step_waits_for_the_device(pair, monkeypatch, name):
    _, replayed = pair(name)
    step, asked = captured.Trainer._step, []

    def watched(trainer, size):
        asked.append(size)
        with NoWaiting():
            step(trainer, size)

    monkeypatch.setattr(captured.Trainer, "_step", watched)
    ends_of(replayed, 2)
    assert asked or name == "SCAFFOLD of NIID-Bench"


def test_a_mask_as_an_index_and_a_number_for_the_host_would_be_seen():
    x = torch.ones(3)
    for waits in (lambda: x[x > 0], x.sum().item, lambda: bool(x[0] > 0), x.nonzero, lambda: torch.tensor([1.0]) + x):
        with NoWaiting(), pytest.raises(AssertionError):
            waits()


def test_what_a_step_reads_is_refilled_and_not_replaced(pair):
    _, replayed = pair("FedProx")
    ends_of(replayed, 1)
    (trainer,) = trainers_of(replayed)
    address, before = trainer.given["w_global"].data_ptr(), trainer.given["w_global"].clone()
    ends_of(replayed, 1)
    assert trainer.given["w_global"].data_ptr() == address and not torch.equal(trainer.given["w_global"], before)


def test_trees_of_other_shape_are_other_recordings():
    tree = {"a": torch.zeros(2), "b": [torch.zeros(1), {"c": torch.zeros(3, dtype=torch.long)}], "d": 1.0}
    kept = captured.static(tree)
    captured.refill(kept, {"a": torch.ones(2), "b": [torch.ones(1), {"c": torch.ones(3, dtype=torch.long)}], "d": 1.0})
    assert kept["b"][1]["c"].tolist() == [1, 1, 1] and tree["a"].tolist() == [0, 0]
    assert captured.shape_of(kept) == captured.shape_of(tree)
    for other in ({"a": torch.zeros(3)}, {"d": 2.0}, {"b": [torch.zeros(1)]}, {"a": torch.zeros(2).double()}):
        assert captured.shape_of(tree | other) != captured.shape_of(tree)


def agree(plain, replayed):
    """Float tolerance: a graph may choose other kernels."""
    for a, b in zip(plain["history"], replayed["history"], strict=True):
        for key, value in a.items():
            if key.startswith("loss"):
                assert abs(value - b[key]) <= 1e-3 + 1e-2 * abs(value)
    for key, value in plain["server"].get("model", {}).items():
        assert torch.allclose(value.float(), replayed["server"]["model"][key].float(), rtol=1e-2, atol=1e-3)


if torch.cuda.is_available():  # where there is none, no test is skipped either

    @pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
    def test_on_a_gpu_the_graph_agrees_with_the_plain_loop(pair, name):
        agree(*(ends_of(federation, 3) for federation in pair(name, "cuda")))

    @pytest.mark.parametrize("given", OTHERWISE)
    def test_on_a_gpu_with_incomplete_batches_limits_streams_and_bfloat16(pair, given):
        agree(*(ends_of(federation, 3) for federation in pair("MOON", "cuda", **given)))

    def test_on_a_gpu_batch_norm_buffers_are_not_moved_by_the_recording(federate):
        trains = train_eagerly, captured.Recorder()
        agree(*(ends_of(federate(FedAvg(), train=train, device="cuda"), 2) for train in trains))

    def test_on_a_gpu_forgotten_recordings_are_made_anew(pair, monkeypatch):
        monkeypatch.setattr(captured, "KEPT", 2)
        for workers in (1, 3):
            agree(*(ends_of(federation, 5) for federation in pair("Decayed", "cuda", workers=workers)))

    def test_on_a_gpu_streams_change_no_number(pair):
        agree(*(ends_of(pair("MOON", "cuda", workers=workers)[1], 3) for workers in (1, 3)))
