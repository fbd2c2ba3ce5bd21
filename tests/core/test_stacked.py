"""One step of all clients at once: the numbers of the plain loop, for every method; recorded as a graph where CUDA is."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from small import BatchNormNet
from torch.utils._python_dispatch import TorchDispatchMode

from fednb import build, federation, models, papers, settings
from fednb.data import Augmentation
from fednb.federation import FedAvg, Phase
from fednb.gpu import layers, stack, stacked


@dataclass
class Decayed(FedAvg):
    """A learning rate that falls from round to round; the first client does without training in the second."""

    def prepare(self, client, received, t):
        return {"lr": torch.tensor(0.02 / (t + 1))}

    def plan(self, client, t):
        return [Phase(0 if (client.id, t) == (0, 1) else 1)]

    def optimizer(self, client, parameters, context):
        return torch.optim.SGD(parameters, float(context["lr"]), momentum=0.9, fused=True)

    def loss(self, model, x, y, context):
        terms = super().loss(model, x, y, context)
        return {name: value * context["lr"].to(x.device) * 50 for name, value in terms.items()}


METHODS = papers.methods() | papers.methods("feddyn_fednova") | {"Decayed": Decayed}
OPTIONS = {
    "FCCL+": {"public_size": 8, "public_batch": 4},
    "FedSSC": {"min_images": 1},
    "FedPLVM": {"lam": 1.0},
}
VARIANTS = {
    "two-stage FedProc": ("FedProc", {"alpha_schedule": "two-stage"}),
    "MOON with two previous models": ("MOON", {"negatives": 2}),
    "SCAFFOLD of NIID-Bench": ("SCAFFOLD", {"niid_bench": True}),
    "FedProto with own start": ("FedProto", {"own_start": True}),
    "MOON with the distance": ("MOON", {"second_term": "l2", "mu": 5.0}),
    "FedProto with distances": ("FedProto", {"distance": "l2"}),
    "FedSSC with local pairs": ("FedSSC", {"variant": "local-pairs", "min_images": 1}),
}
# in whose third round a client reads what it has not had in the second
LONGER = ["two-stage FedProc", "MOON with two previous models"]
# one of the methods whose clients work alike: what differs between these is the server's
HOOKS = ("loss", "prepare", "plan", "optimizer", "upload")
BY_WORK = {
    tuple(getattr(METHODS[name], hook) for hook in HOOKS): name for name in reversed(METHODS)
}
DIFFERENT = [*BY_WORK.values(), *VARIANTS]
# whose gradients share no code
APART = ["MOON", "FedProto", "FedPLCC", "FedSSC", "FedPLVM"]
APART += ["MOON with the distance", "FedProto with distances", "FedSSC with local pairs"]


def ends_of(federation, rounds=3):
    """What a federation ends with, but accuracies and seconds: all of its state, what crossed, and losses."""
    for _ in range(rounds):
        federation.run_round()
    kept = ("loss", "up", "down", "held")
    history = [{k: v for k, v in e.items() if k.startswith(kept)} for e in federation.history]
    return federation.checkpoint() | {"history": history}


def assert_same(first, second, times=1):
    """Up to rounding, in float64, and so many times it."""
    torch.testing.assert_close(first, second, rtol=1e-7 * times, atol=1e-9 * times)


@pytest.fixture
def pair(federate, make_dataset):
    """Two equal federations with dropout, augmentation and a client smaller than a batch; one trains all clients at once."""

    def make(name, device="cpu", network="mnist-cnn", **given):
        method, options = VARIANTS.get(name, (name, OPTIONS.get(name, {})))
        augmentation = Augmentation(pad=2, flip=True, rotation=10)
        images = {"images": 31, "shape": (3, 28, 28), "num_classes": 4}
        dataset = make_dataset(**images, augmentation=augmentation)
        build_model = partial(models.build, network, 4, side=28, projection_head=False)
        shared = {"dataset": dataset, "build_model": build_model, "sizes": (12, 9, 7, 3)}
        shared |= {"num_rounds": 3, "batch_size": 4, "lr": 0.02, "device": device} | given
        trainers = (None, stacked.StackedTrainer(check=True))
        found = [federate(METHODS[method](**options), train=one, **shared) for one in trainers]
        for fed in found:
            fed.images.constants = [c.to(torch.get_default_dtype()) for c in fed.images.constants]
        return found

    return make


LAUNCHES = yaml.safe_load((Path(__file__).parents[1] / "launches.yaml").read_text(encoding="utf-8"))


def launches(name):
    """How many kernels an operation launches for a batch, whatever its size; what is not listed launches one."""
    number = re.match(r"\d+", str(LAUNCHES.get(name, {}).get("launches")))
    return int(number[0]) if number else 1


class Watch(TorchDispatchMode):
    """Counts launches, and refuses what makes a GPU's host wait, brings its numbers over, or launches once per image."""

    WAITING = "_local_scalar_dense nonzero is_nonzero masked_select unique _unique2 equal".split()
    WAITING += ["lift_fresh"]
    VIEWS = "view _unsafe_view expand permute transpose t squeeze unsqueeze as_strided".split()
    VIEWS += "detach alias split split_with_sizes select slice unfold unbind".split()
    VIEWS += "empty new_empty empty_like empty_strided new_empty_strided".split()

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in self.WAITING, f"{name} waits for the device"
        assert not LAUNCHES.get(name, {}).get("per_image"), (
            f"{name} launches a kernel for each image"
        )
        # a mask as an index has as many results as it has hits
        if name in ("index", "index_put_", "_index_put_impl_"):
            assert not any(index is not None and index.dtype == torch.bool for index in args[1])
        if name not in self.VIEWS:
            self.count += launches(name)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def watched(monkeypatch):
    """How many clients each step moved, by how many operations; none of which waits for the device."""
    step, found = stack.StackedClients._step, []

    def watch(clients, shape):
        with Watch() as watching:
            step(clients, shape)
        found.append((shape.num_clients, watching.count))

    monkeypatch.setattr(stack.StackedClients, "_step", watch)
    return found


@pytest.mark.parametrize("name", DIFFERENT)
def test_all_clients_at_once_give_the_numbers_of_the_plain_loop_for_every_method(
    double, pair, watched, name
):
    plain, together = pair(name, local_epochs=1)
    # FCCL+'s public step divides by the spread of a fresh network's logits: rounding grows a hundredfold a round
    times = 10 if name == "FCCL+" else 1
    rounds = 3 if name in LONGER else 2
    assert_same(ends_of(plain, rounds), ends_of(together, rounds), times)
    assert bool(watched) != (name == "SCAFFOLD of NIID-Bench")


@pytest.mark.parametrize("name", ["SCAFFOLD", "MOON", "FedProto"])
def test_where_a_round_begins_the_step_of_all_clients_is_that_of_the_plain_loop(pair, name):
    """In float32, where rounding is not zero; in float64 whole rounds are compared above."""
    _, together = pair(name)
    for _ in range(3):  # in each round a new trainer, which checks its first steps
        together.train = stacked.StackedTrainer(check=True)
        together.run_round()


@pytest.mark.parametrize("name", APART)
def test_where_a_round_begins_a_gradient_does_not_hang_on_rounding(pair, name, monkeypatch):
    """A loss with a kink where networks are equal has another gradient once they differ by a bit."""
    fed, _ = pair(name)
    plain, changes = federation.sgd_steps, []

    def steps(method, client, given, batches):
        batches = list(batches)
        if fed.rounds_done == 2 and batches:
            index, draws = batches[0]
            images = client.images.inputs(index, draws), client.images.labels[index]
            changes.append(change_of_gradient(method, client, given, images))
        plain(method, client, given, batches)

    monkeypatch.setattr(federation, "sgd_steps", steps)
    for _ in range(3):
        fed.run_round()
    assert changes and all(change < 0.02 for change in changes)


def change_of_gradient(method, client, given, batch):
    """By what part of its length a gradient changes when weights change by a little.

    Each by a ten-millionth of the length of its tensor.
    """
    parameters = [p for p in client.model.parameters() if p.requires_grad]

    def gradient():
        client.seed_dropout(0)
        loss = sum(method.loss(client.model, *batch, given).values())
        found = torch.autograd.grad(loss, parameters, materialize_grads=True)
        return torch.cat([one.flatten() for one in found])

    before = gradient()
    with torch.no_grad():
        for parameter in parameters:
            parameter += 1e-7 * parameter.norm() * torch.randn_like(parameter)
    return float((gradient() - before).norm() / before.norm())


def test_a_step_that_is_not_the_plain_loops_is_an_error_on_the_first_run(pair, monkeypatch):
    _, together = pair("MOON")
    terms = stack.StackedClients._terms
    vmapped = []

    def lose_a_term(clients, weights, *rest):  # in the step for all clients, not in a client's own
        found = terms(clients, weights, *rest)
        if torch._C._functorch.is_batchedtensor(weights):
            vmapped.append(found.pop("cross_entropy"))
            found["cross_entropy"] = vmapped[-1] * 0
        return found

    monkeypatch.setattr(stack.StackedClients, "_terms", lose_a_term)
    with pytest.raises(stack.WrongStep, match="MOON"):
        together.run_round()
    assert vmapped


@dataclass
class Branching(FedAvg):
    """What `torch.vmap` cannot do: a branch on data."""

    def loss(self, model, x, y, context):
        terms = super().loss(model, x, y, context)
        return terms if terms["cross_entropy"] > -1 else {}


def test_a_step_that_cannot_be_stacked_is_made_by_the_plain_loop_and_the_reason_is_told_once(
    double, pair, monkeypatch, capsys
):
    monkeypatch.setitem(METHODS, "Branching", Branching)
    plain, together = pair("Branching")
    assert_same(ends_of(plain), ends_of(together))
    (line,) = capsys.readouterr().err.splitlines()
    assert "Branching" in line and "vmap" in line


def test_a_network_of_float64_is_trained_in_float64(federate):
    def build(*_):
        return BatchNormNet().double()

    fed = federate(build_model=build, train=stacked.StackedTrainer())
    fed.images.constants = [c.double() for c in fed.images.constants]
    fed.run_round()
    (clients,) = fed.train.stacks.values()
    assert clients.weights.dtype == clients.momentum.dtype == torch.float64


CONVOLUTIONS = [
    {"kernel_size": 5},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 1), "dilation": (2, 1), "bias": False},
    {"kernel_size": 3, "groups": 3},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_layers_as_products_are_the_layers_with_their_gradients(double, options):
    layer = torch.nn.Conv2d(3, 6, **options)
    x = torch.randn(4, 3, 17, 19, requires_grad=True)

    def gradients():
        return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])

    with layers.MatrixLayers():
        of_products = [layer(x), *gradients()]
    assert_same([layer(x), *gradients()], of_products)


def test_patches_take_one_launch_forward_whatever_the_number_of_images():
    images = torch.randn(64, 3, 32, 32)
    with Watch() as watching:
        layers.patches(images, (5, 5), (1, 1), (0, 0), (1, 1))
    assert watching.count == 1
    with pytest.raises(AssertionError, match="each image"), Watch():
        torch.nn.functional.unfold(images, 5)


OTHERWISE = {
    "a limit within an epoch with incomplete batches": {"keep_last": True, "local_steps": 4},
    "clients sampled": {"participation": 0.5},
    "one client": {"participation": 0.25},
    "without momentum and weight decay": {"momentum": 0.0, "weight_decay": 0.0},
}


@pytest.mark.parametrize(
    ("name", "given"),
    [*[("MOON", given) for given in OTHERWISE.values()], ("FedRep", {"local_steps": 3})],
    ids=str,
)
def test_so_they_do_whatever_the_batches_and_clients_are(double, pair, name, given):
    plain, together = pair(name, **given)
    assert_same(ends_of(plain, 2), ends_of(together, 2))


def test_batch_norm_keeps_the_means_of_each_client(double, federate):
    plain = federate(FedAvg())
    together = federate(FedAvg(), train=stacked.StackedTrainer(check=True))
    assert any("running_mean" in name for name in plain.server["model"])
    for fed in (plain, together):
        fed.images.constants = [c.double() for c in fed.images.constants]
    assert_same(ends_of(plain), ends_of(together))


OTHERS = {
    "another weight of a term": ({"mu": 5.0}, {}),
    "a class of the same name": ({}, {"class": True}),
}


@pytest.mark.parametrize(("options", "other"), OTHERS.values(), ids=OTHERS)
def test_a_trainer_serves_a_second_federation_by_its_own_settings(
    double, pair, monkeypatch, options, other
):
    _, first = pair("MOON")
    ends_of(first, 2)
    monkeypatch.setitem(VARIANTS, "second", ("MOON", options))
    if "class" in other:
        monkeypatch.setitem(METHODS, "MOON", louder(METHODS["MOON"]))
    plain, second = pair("second")
    second.train = first.train
    stacks = set(map(id, first.train.stacks.values()))
    assert_same(ends_of(plain, 2), ends_of(second, 2))
    assert stacks.isdisjoint(map(id, first.train.stacks.values()))  # its own, which were checked


def louder(method):
    """A method of the same name and settings, as a changed cell makes it, with another loss."""

    def loss(self, model, x, y, context):
        terms = method.loss(self, model, x, y, context)
        return {name: 2 * term for name, term in terms.items()}

    return type(method.__name__, (method,), {"loss": loss})


def test_a_large_network_goes_one_client_at_a_time(double, pair, monkeypatch):
    monkeypatch.setattr(stacked, "LARGE", 1000)
    plain, together = pair("MOON")
    assert_same(ends_of(plain), ends_of(together))
    assert all(len(clients.weights) == 1 for clients in together.train.stacks.values())


def test_seeds_side_by_side_are_the_runs_alone(double, pair):
    rounds = (1, 3, 2)  # some end before
    alone = [ends_of(pair("MOON", seed=seed)[0], n) for seed, n in enumerate(rounds)]
    meeting = stacked.SeedsTogether(len(rounds))
    feds = [pair("MOON", seed=seed)[1] for seed in range(len(rounds))]

    def run(fed, n):
        fed.train = meeting
        try:
            return ends_of(fed, n)
        finally:
            meeting.leave()

    with ThreadPoolExecutor(len(rounds)) as pool:
        found = list(pool.map(run, feds, rounds))
    assert_same(alone, found)
    # they did train as one
    assert max(len(clients.weights) for clients in meeting.stacks.values()) == 4 * len(rounds)


def test_an_error_reaches_every_seed(pair, monkeypatch):
    meeting, feds = stacked.SeedsTogether(2), [pair("FedAvg", seed=seed)[1] for seed in range(2)]
    monkeypatch.setattr(type(feds[0].method), "loss", lambda *_: 1 / 0)
    for fed in feds:
        fed.train = meeting
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(ends_of, fed) for fed in feds]
    assert all(isinstance(end.exception(), ZeroDivisionError) for end in ends)


def test_a_step_of_ten_clients_of_moon_takes_at_most_21_launches_of_each(watched):
    own = settings.resolve(METHODS, method="MOON", dataset="digits", num_rounds=2, local_epochs=1)
    federation = build.federation(own, METHODS, device="cpu", workers=1)
    federation.train = stacked.StackedTrainer(check=True)
    ends_of(federation, 2)
    k, num_launches = max(watched)
    assert k == 10
    assert num_launches <= 21 * k


def test_shapes_are_recorded_once_and_not_without_end(double, pair, monkeypatch):
    monkeypatch.setattr(stacked, "MAX_STACKS", 2)
    plain, together = pair("Decayed")
    assert_same(ends_of(plain, 4), ends_of(together, 4))
    assert len(together.train.stacks) <= 2


def test_only_plain_sgd_is_stacked():
    weight = [torch.nn.Parameter(torch.zeros(2))]
    sgd = torch.optim.SGD(weight, 0.1, momentum=0.9)
    assert stack.is_plain_sgd(sgd)
    assert not stack.is_plain_sgd(torch.optim.SGD(weight, 0.1, momentum=0.9, dampening=0.5))
    assert not stack.is_plain_sgd(torch.optim.Adam(weight))
    sgd.register_step_post_hook(lambda *_: None)
    assert not stack.is_plain_sgd(sgd)


if torch.cuda.is_available():  # where there is none, no test is skipped either

    @pytest.mark.parametrize("name", DIFFERENT)
    def test_on_a_gpu_the_graph_makes_the_steps_that_are_made_without_it(
        double, pair, monkeypatch, name
    ):
        recorded = ends_of(pair(name, "cuda")[1])

        def step(clients, shape):
            return partial(clients._step, shape)

        monkeypatch.setattr(stack.StackedClients, "_record", step)
        assert_same(ends_of(pair(name, "cuda")[1]), recorded)

    @pytest.mark.parametrize("given", OTHERWISE.values(), ids=OTHERWISE)
    def test_on_a_gpu_all_clients_at_once_are_the_plain_loop(double, pair, given):
        # without dropout: there the plain loop draws other numbers on a GPU
        plain, together = pair("MOON", "cuda", "simple-cnn", **given)
        assert_same(ends_of(plain), ends_of(together))
