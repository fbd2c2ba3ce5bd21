"""Networks: sizes counted by hand, shapes, and initial weights that depend on the seed alone."""

import pytest
import torch

from fednb import models


def linear(inputs, outputs):
    return inputs * outputs + outputs


def conv(inputs, outputs, side):
    return inputs * outputs * side**2


def norms(*widths):
    return sum(2 * w for w in widths)


def basic(inputs, width):
    """Values of a ResNet block of two 3x3 convolutions."""
    shortcut = conv(inputs, width, 1) + norms(width) if inputs != width else 0
    return conv(inputs, width, 3) + conv(width, width, 3) + norms(width, width) + shortcut


def bottleneck(inputs, width):
    """Values of a ResNet bottleneck block."""
    out = 4 * width
    shortcut = conv(inputs, out, 1) + norms(out) if inputs != out else 0
    return conv(inputs, width, 1) + conv(width, width, 3) + conv(width, out, 1) + norms(width, width, out) + shortcut


STEM = conv(3, 64, 3) + norms(64)
SIMPLE_CNN = (conv(3, 6, 5) + 6) + (conv(6, 16, 5) + 16) + linear(400, 120) + linear(120, 84)
RESNET_10 = STEM + basic(64, 64) + basic(64, 128) + basic(128, 256) + basic(256, 512)
RESNET_50 = STEM + sum(
    bottleneck(inputs, width) + (blocks - 1) * bottleneck(4 * width, width)
    for inputs, width, blocks in ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3))
)


@pytest.mark.parametrize(
    ("name", "num_classes", "head", "by_hand", "published"),
    [
        ("simple-cnn", 10, True, SIMPLE_CNN + linear(84, 84) + linear(84, 256) + linear(256, 10), 92_626),
        ("simple-cnn", 10, False, SIMPLE_CNN + linear(84, 10), 62_006),
        ("resnet-10", 10, False, RESNET_10 + linear(512, 10), 4_903_242),
        ("resnet-50", 100, True, RESNET_50 + linear(2048, 2048) + linear(2048, 256) + linear(256, 100), 28_246_948),
    ],
)
def test_parameter_counts_are_those_counted_by_hand(name, num_classes, head, by_hand, published):
    model = models.build(name, num_classes, projection_head=head)
    assert models.num_parameters(model) == by_hand == published


@pytest.mark.parametrize(
    ("name", "channels", "side", "head", "width"),
    [
        ("digits-cnn", 1, 8, True, 64),
        ("digits-cnn", 1, 8, False, 64),
        ("simple-cnn", 3, 32, True, 256),
        ("simple-cnn", 1, 28, False, 84),
        ("resnet-10", 3, 32, True, 256),
        ("resnet-18", 1, 8, False, 512),
    ],
)
def test_a_model_returns_representation_and_logits(name, channels, side, head, width):
    model = models.build(name, 7, channels=channels, side=side, projection_head=head).eval()
    z, logits = model(torch.rand(2, channels, side, side))
    assert z.shape == (2, width)
    assert logits.shape == (2, 7)
    torch.testing.assert_close(logits, model.classifier(z))  # the output layer sees the representation


def test_without_a_projection_head_the_representation_is_the_encoders_output():
    x = torch.rand(2, 1, 8, 8)
    model = models.build("digits-cnn", 10, channels=1, side=8, projection_head=False)
    assert torch.equal(model(x).representation, model.encoder(x))
    model = models.build("digits-cnn", 10, channels=1, side=8)
    assert torch.equal(model(x).representation, model.head(model.encoder(x)))
    assert (model(x).representation < 0).any()  # no ReLU behind the head


def test_the_width_of_the_representation_can_be_chosen():
    model = models.build("simple-cnn", 10, projection_dim=64)
    assert model(torch.rand(2, 3, 32, 32)).representation.shape == (2, 64)
    own = models.build("simple-cnn", 10, projection_dim=256).state_dict()
    default = models.build("simple-cnn", 10).state_dict()
    assert all(torch.equal(own[n], default[n]) for n in default)


def test_the_shape_for_frozen_networks_is_no_part_of_the_network():
    model = models.build("resnet-10", 10)
    assert models.num_parameters(model) == RESNET_10 + linear(512, 512) + linear(512, 256) + linear(256, 10)
    assert sum(isinstance(module, models.Net) for module in model.modules()) == 1
    assert not any("_shape" in name for name in model.state_dict())


def test_resnets_have_the_cifar_form():
    encoder = models.build("resnet-10", 10).encoder
    x = torch.rand(1, 3, 32, 32)
    assert encoder.maxpool(encoder.conv1(x)).shape == (1, 64, 32, 32)  # the stem keeps all pixels


def test_the_seed_decides_the_initial_weights():
    first, again, other = (models.build("digits-cnn", 10, channels=1, side=8, seed=s).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not any(torch.equal(first[n], other[n]) for n in first)


def test_initial_weights_neither_read_nor_move_the_global_generator():
    torch.manual_seed(1)
    first = models.build("digits-cnn", 10, channels=1, side=8)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)
    second = models.build("digits-cnn", 10, channels=1, side=8)  # the global generator is elsewhere now
    assert torch.equal(first.classifier.weight, second.classifier.weight)


@pytest.mark.parametrize(("name", "side"), [("digits-cnn", 32), ("simple-cnn", 8), ("simple-cnn", 64), ("resnet-10", 4)])
def test_images_that_do_not_fit_are_refused(name, side):
    with pytest.raises(ValueError, match=f"{name}.*{side}x{side} pixels; it takes sides of"):
        models.build(name, 10, side=side)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'resnet-51'; known: digits-cnn, .*resnet-50"):
        models.build("resnet-51", 10)
