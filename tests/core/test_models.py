"""Networks: sizes counted by hand, shapes, and initial weights that depend on the seed alone."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.error import URLError

import pytest
import torch
from torchvision.models import resnet

from fednb import models
from fednb.federation import flat


def uniform(seed=0):
    """What dropout draws from."""
    return partial(torch.rand, generator=torch.Generator().manual_seed(seed))


COUNTED = [  # name, channels, side, classes, head, numbers, width of z
    ("digits-cnn", 1, 8, 10, False, 13_706, 64),
    ("simple-cnn", 3, 32, 10, True, 92_626, 256),
    ("simple-cnn", 3, 32, 10, False, 62_006, 84),
    ("resnet-10", 3, 32, 10, False, 4_903_242, 512),  # FedPLCC: about 4.90 million
    ("resnet-10", 3, 32, 10, True, 5_294_666, 256),
    ("resnet-10-16", 3, 32, 10, False, 308_826, 128),
    ("resnet-50", 3, 32, 100, True, 28_246_948, 256),
    ("mnist-cnn", 1, 28, 10, False, 21_840, 50),
    ("femnist-cnn", 1, 128, 62, False, 849_332, 50),
    ("resnet-18-7x7", 3, 32, 10, False, 11_181_642, 512),
    ("resnet-18-7x7-stride-1-4", 3, 32, 10, False, 11_181_642, 512),
]


@pytest.mark.parametrize(
    ("name", "channels", "side", "num_classes", "head", "numbers", "width"), COUNTED
)
def test_networks_have_the_sizes_counted_by_hand(
    name, channels, side, num_classes, head, numbers, width
):
    model = models.build(name, num_classes, channels=channels, side=side, projection_head=head)
    model.eval()
    assert len(flat(model)) == numbers
    x = torch.rand(2, channels, side, side)
    z, logits = model(x)
    assert z.shape == (2, width) and logits.shape == (2, num_classes)
    assert torch.equal(logits, model.classifier(z))  # the output layer sees the representation
    assert (z < 0).any() == head and (z > 0).any()  # an encoder ends with a ReLU, a head without
    assert torch.equal(model.frozen([model.state_dict()], x)[0], z)


def fedproto_net(name):
    channels, side, num_classes = next(row[1:4] for row in COUNTED if row[0] == name)
    shape = {"channels": channels, "side": side}
    model = models.build(name, num_classes, projection_head=False, **shape)
    return model, uniform(3)((4, channels, side, side))


def test_the_width_of_a_head_can_be_chosen_and_what_freezes_networks_is_no_part_of_them():
    headed = models.build("simple-cnn", 10, projection_dim=64)
    headless = models.build("mnist-cnn", 10, channels=1, side=28, projection_dim=64)
    assert (headed.classifier.in_features, headless.classifier.in_features) == (64, 50)
    assert [type(module) for module in headed.modules()].count(models.Net) == 1


def test_the_seed_decides_the_initial_weights_and_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = models.build("digits-cnn", 10, channels=1, side=8).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = models.build("digits-cnn", 10, channels=1, side=8, seed=0).state_dict()
    other = models.build("digits-cnn", 10, channels=1, side=8, seed=1).state_dict()
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not any(torch.equal(first[n], other[n]) for n in first)


def test_threads_that_build_networks_at_the_same_time_do_not_draw_from_one_another():
    def weights(seed):
        return models.build("simple-cnn", 10, seed=seed).classifier.weight

    seeds = list(range(8)) * 10
    alone = {seed: weights(seed) for seed in set(seeds)}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(weights, seeds))
    assert all(torch.equal(w, alone[seed]) for seed, w in zip(seeds, together, strict=True))


def test_imagenet_weights_of_another_network_are_refused():
    with pytest.raises(ValueError, match=r"no ImageNet weights for model .simple-cnn.: leave"):
        models.build("simple-cnn", 10, pretrained=True)


def test_the_stem_of_a_resnet_is_that_of_the_variant():
    stems = {"-7x7": ((2, 2), 8), "-7x7-stride-1-4": ((1, 4), 8), "": ((1, None), 32)}
    for name, (strides, side) in stems.items():
        encoder = models.build(f"resnet-18{name}", 10, projection_head=False).encoder
        assert (encoder.conv1.stride[0], getattr(encoder.maxpool, "stride", None)) == strides
        assert encoder.maxpool(encoder.conv1(torch.rand(1, 3, 32, 32))).shape == (1, 64, side, side)


def test_heterogeneous_clients_have_the_networks_of_fedprotos_code():
    three = ["mnist-cnn-18"] * 7 + ["mnist-cnn"] * 7 + ["mnist-cnn-22"] * 6
    two = ["resnet-18-7x7-stride-1-4"] * 10 + ["resnet-18-7x7"] * 10
    assert models.heterogeneous("mnist-cnn", 20) == three
    assert models.heterogeneous("femnist-cnn", 20) == [f"fe{name}" for name in three]
    assert models.heterogeneous("resnet-18-7x7", 20) == two
    for num_clients, numbers in ((3, [1, 1, 1]), (10, [3, 4, 3]), (40, [14, 14, 12])):
        given = models.heterogeneous("mnist-cnn", num_clients)
        assert [given.count(name) for name in dict.fromkeys(three)] == numbers
    with pytest.raises(ValueError, match=r"no variants .* of .simple-cnn.: known are mnist-cnn"):
        models.heterogeneous("simple-cnn", 20)


# --- dropout


def test_dropout_draws_from_what_it_is_given_and_from_nothing_else():
    model, x = fedproto_net("mnist-cnn")
    with pytest.raises(RuntimeError, match="call seed_dropout"):
        model(x)
    model.eval()(x)  # needs none
    model.train()

    def out(seed, disturb=0):
        torch.manual_seed(disturb)
        before = torch.get_rng_state()
        models.seed_dropout(model, uniform(seed))
        first, second = model(x).logits, model(x).logits
        assert not torch.equal(first, second)  # a new mask for each batch
        assert torch.equal(torch.get_rng_state(), before)
        return first

    assert torch.equal(out(1), out(1, disturb=7))
    assert not torch.equal(out(1), out(2))


def test_channel_dropout_zeroes_whole_channels_and_keeps_the_mean():
    drop, flat = models.Dropout(0.25, channelwise=True), models.Dropout(0.25)
    drop.draw = flat.draw = uniform()
    y = drop(torch.ones(300, 40, 3, 3))
    assert ((y == 0) == (y == 0)[..., :1, :1]).all()
    assert sorted(y.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert y.mean().item() == pytest.approx(1, abs=0.03)
    # single values
    assert ((flat(torch.ones(50, 40, 3, 3)) == 0).float().mean((2, 3)) % 1 > 0).any()


# --- ImageNet weights


def test_imagenet_weights_are_put_everywhere_but_into_first_and_last_layer(monkeypatch):
    with torch.random.fork_rng():
        imagenet = {n: v + 1 for n, v in resnet.resnet18().state_dict().items()}
    monkeypatch.setattr(resnet.ResNet18_Weights, "get_state_dict", lambda self, **_: imagenet)
    build = partial(models.build, "resnet-18-7x7", 10, projection_head=False)
    trained, random = (build(pretrained=flag).state_dict() for flag in (True, False))
    for entry, value in trained.items():
        layer = entry.removeprefix("encoder.")
        own = layer.split(".")[0] in {"conv1", "bn1", "classifier"}
        assert torch.equal(value, random[entry] if own else imagenet[layer]), entry
        assert own or not torch.equal(value, random[entry]), entry
    assert len(trained) == len(imagenet)


def test_imagenet_weights_that_cannot_be_reached_are_one_sentence_that_says_what_to_do(monkeypatch):
    def fail(self, **_):
        raise URLError("no route")

    monkeypatch.setattr(resnet.ResNet18_Weights, "get_state_dict", fail)
    words = r"cannot be loaded \(.*no route.*\): .*resnet18-\w+\.pth .* pretrained=False"
    with pytest.raises(ValueError, match=words):
        models.build("resnet-18-7x7", 10, projection_head=False, pretrained=True)
