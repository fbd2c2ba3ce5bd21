"""Networks: sizes counted by hand, shapes, and initial weights that depend on the seed alone."""

from concurrent.futures import ThreadPoolExecutor
from urllib.error import URLError

import pytest
import torch
from torchvision.models import resnet

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
RESNET_10_16 = conv(3, 16, 3) + norms(16) + basic(16, 16) + basic(16, 32) + basic(32, 64) + basic(64, 128)
RESNET_18_7X7 = (
    conv(3, 64, 7)
    + norms(64)
    + sum(basic(inputs, width) + basic(width, width) for inputs, width in ((64, 64), (64, 128), (128, 256), (256, 512)))
)
RESNET_50 = STEM + sum(
    bottleneck(inputs, width) + (blocks - 1) * bottleneck(4 * width, width)
    for inputs, width, blocks in ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3))
)


def fedproto_cnn(kernel, width, side, num_classes):
    left = ((side - kernel + 1) // 2 - 4) // 2
    return (conv(1, 10, kernel) + 10) + (conv(10, width, 5) + width) + linear(width * left**2, 50) + linear(50, num_classes)


@pytest.mark.parametrize(
    ("name", "num_classes", "head", "by_hand", "published"),
    [
        ("simple-cnn", 10, True, SIMPLE_CNN + linear(84, 84) + linear(84, 256) + linear(256, 10), 92_626),
        ("simple-cnn", 10, False, SIMPLE_CNN + linear(84, 10), 62_006),
        ("resnet-10", 10, False, RESNET_10 + linear(512, 10), 4_903_242),  # FedPLCC: about 4.90 million
        ("resnet-10-16", 10, False, RESNET_10_16 + linear(128, 10), 308_826),
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
        ("digits-cnn", 3, 16, False, 64),
        ("resnet-10-16", 3, 32, False, 128),
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


# FedProto's networks

FEDPROTO = [
    ("mnist-cnn", 28, 10, fedproto_cnn(5, 20, 28, 10), 21_840),
    ("mnist-cnn-18", 28, 10, fedproto_cnn(5, 18, 28, 10), 19_738),
    ("mnist-cnn-22", 28, 10, fedproto_cnn(5, 22, 28, 10), 23_942),
    ("femnist-cnn", 128, 62, fedproto_cnn(3, 20, 128, 62), 849_332),
    ("femnist-cnn-18", 128, 62, fedproto_cnn(3, 18, 128, 62), 764_730),
    ("femnist-cnn-22", 128, 62, fedproto_cnn(3, 22, 128, 62), 933_934),
    ("resnet-18-7x7", 32, 10, RESNET_18_7X7 + linear(512, 10), 11_181_642),
    ("resnet-18-7x7-stride-1-4", 32, 10, RESNET_18_7X7 + linear(512, 10), 11_181_642),
]


def fedproto_net(name, seed=0):
    side, num_classes = next((side, k) for n, side, k, *_ in FEDPROTO if n == name)
    channels = 3 if "resnet" in name else 1
    model = models.build(name, num_classes, channels=channels, side=side, projection_head=False, seed=seed)
    return model, torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(3))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("name", "side", "num_classes", "by_hand", "published"), FEDPROTO)
def test_fedprotos_networks_have_the_parameters_of_its_code(name, side, num_classes, by_hand, published):
    model, x = fedproto_net(name)
    assert models.num_parameters(model) == by_hand == published
    z, logits = model.eval()(x)
    assert z.shape == (4, 512 if "resnet" in name else 50)
    assert logits.shape == (4, num_classes)
    assert torch.equal(logits, model.classifier(z))
    assert (z >= 0).all() and (z > 0).any()  # behind a ReLU
    assert torch.equal(model.frozen([model.state_dict()], x)[0], z)


def test_what_fedper_shares_are_the_convolutions():
    for name, shared in (("mnist-cnn", 5_280), ("femnist-cnn", 5_120)):
        encoder = fedproto_net(name)[0].encoder
        assert sum(models.num_parameters(m) for m in encoder if isinstance(m, torch.nn.Conv2d)) == shared


def test_the_strides_of_the_resnet_are_those_of_the_variant():
    for name, strides in (("resnet-18-7x7", (2, 2)), ("resnet-18-7x7-stride-1-4", (1, 4))):
        encoder, x = fedproto_net(name)[0].encoder, fedproto_net(name)[1]
        assert (encoder.conv1.stride[0], encoder.maxpool.stride) == strides
        assert encoder.conv1(x).shape[-1] == 32 // strides[0]
        assert encoder.maxpool(encoder.conv1(x)).shape == (4, 64, 8, 8)  # from here on the variants are the same


def test_heterogeneous_clients_have_the_networks_of_fedprotos_code():
    assert models.heterogeneous("mnist-cnn", 20) == ["mnist-cnn-18"] * 7 + ["mnist-cnn"] * 7 + ["mnist-cnn-22"] * 6
    assert models.heterogeneous("femnist-cnn", 20)[6:8] == ["femnist-cnn-18", "femnist-cnn"]
    assert models.heterogeneous("resnet-18-7x7", 20) == ["resnet-18-7x7-stride-1-4"] * 10 + ["resnet-18-7x7"] * 10
    for num_clients, numbers in ((3, (1, 1, 1)), (10, (3, 4, 3)), (40, (14, 14, 12))):
        given = models.heterogeneous("mnist-cnn", num_clients)
        assert tuple(map(given.count, ("mnist-cnn-18", "mnist-cnn", "mnist-cnn-22"))) == numbers
    assert models.heterogeneous("resnet-18-7x7", 2) == ["resnet-18-7x7-stride-1-4", "resnet-18-7x7"]
    with pytest.raises(
        ValueError, match=r"'simple-cnn' has no variants .* these have: mnist-cnn, femnist-cnn, resnet-18-7x7"
    ):
        models.heterogeneous("simple-cnn", 20)


def test_fedprotos_networks_have_no_projection_head():
    with pytest.raises(ValueError, match="'mnist-cnn' has no projection head: build it with projection_head=False"):
        models.build("mnist-cnn", 10, channels=1, side=28)


# Dropout


def test_dropout_draws_depend_on_its_generator_and_on_nothing_else():
    model, x = fedproto_net("mnist-cnn")

    def out(seed, disturb=0):
        torch.manual_seed(disturb)
        models.seed_dropout(model, generator(seed))
        first, second = model(x).logits, model(x).logits
        assert not torch.equal(first, second)  # a new mask for each batch
        return first

    assert torch.equal(out(1), out(1, disturb=7))
    assert not torch.equal(out(1), out(2))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    out(1, disturb=5)
    assert torch.equal(torch.get_rng_state(), before)  # the global generator has not moved


def test_dropout_without_a_generator_cannot_be_trained_but_evaluated():
    model, x = fedproto_net("mnist-cnn")
    with pytest.raises(RuntimeError, match="call seed_dropout"):
        model(x)
    expected = model.eval()(x).logits
    models.seed_dropout(model, generator())
    assert torch.equal(model(x).logits, expected)  # identity in eval mode
    models.seed_dropout(model.train(), None)
    with pytest.raises(RuntimeError, match="call seed_dropout"):
        model(x)


def test_channel_dropout_zeroes_whole_channels_and_keeps_the_mean():
    drop = models.Dropout(0.25, channelwise=True)
    drop.generator = generator()
    y = drop(torch.ones(300, 40, 3, 3))
    assert ((y == 0) == (y == 0)[..., :1, :1]).all()
    assert sorted(y.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert (y == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert y.mean().item() == pytest.approx(1, abs=0.03)
    flat = models.Dropout(0.25)
    flat.generator = generator()
    assert ((flat(torch.ones(50, 40, 3, 3)) == 0).float().mean((2, 3)) % 1 > 0).any()  # single values
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"must be in \[0, 1\)"):
            models.Dropout(p)


def test_dropout_stands_after_the_second_convolution_and_before_the_output_layer():
    model, x = fedproto_net("mnist-cnn")
    assert [type(m).__name__ for m in model.encoder] == [
        *("Conv2d", "MaxPool2d", "ReLU"),
        *("Conv2d", "Dropout", "MaxPool2d", "ReLU"),
        *("Flatten", "Linear", "ReLU"),
    ]
    assert model.encoder[4].channelwise and not model.dropout.channelwise
    models.seed_dropout(model, generator())
    z, logits = model(x)
    again = generator()
    torch.rand(4, 20, 1, 1, generator=again)  # the channels' mask comes first
    mask = torch.rand(z.shape, generator=again) >= 0.5
    torch.testing.assert_close(logits, model.classifier(z * mask * 2))  # the representation itself is not masked


def test_gradients_flow_through_what_dropout_keeps():
    drop, x = models.Dropout(0.5), torch.ones(8, 10, requires_grad=True)
    drop.generator = generator()
    y = drop(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_clients_side_by_side_draw_as_if_each_were_alone():
    """Two networks in two threads against one after the other."""
    nets = [fedproto_net("mnist-cnn")[0] for _ in range(2)]
    x = fedproto_net("mnist-cnn")[1]

    def work(i):
        models.seed_dropout(nets[i], generator(i))
        return torch.stack([nets[i](x).logits.detach() for _ in range(20)])

    alone = [work(i) for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(work, range(2)))
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("name", ["mnist-cnn", "resnet-18-7x7"])
def test_in_eval_mode_networks_compile_and_run_batched_over_clients(name):
    model, x = fedproto_net(name)
    model.eval()
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True, backend="eager")(x)
    assert torch.equal(compiled.logits, expected.logits)
    states = [model.state_dict(), fedproto_net(name, seed=1)[0].state_dict()]
    stacked = {n: torch.stack([state[n] for state in states]) for n in states[0]}
    together = torch.func.vmap(lambda state: torch.func.functional_call(model, state, (x,)).logits)(stacked)
    torch.testing.assert_close(together[0], expected.logits, rtol=1e-4, atol=1e-4)


def test_networks_without_dropout_compile_and_run_batched_in_train_mode():
    model, x = models.build("simple-cnn", 10, channels=1, side=28), torch.rand(4, 1, 28, 28)
    assert torch.equal(torch.compile(model, fullgraph=True, backend="eager")(x).logits, model(x).logits)
    stacked = {n: torch.stack([v, 2 * v]) for n, v in model.state_dict().items()}
    together = torch.func.vmap(lambda state: torch.func.functional_call(model, state, (x,)).logits)(stacked)
    torch.testing.assert_close(together[0], model(x).logits, rtol=1e-4, atol=1e-4)
    assert not any("dropout" in n for n in model.state_dict())


def test_the_output_layer_sees_what_dropout_leaves():
    net, z = models.Net(torch.nn.Flatten(), 8, 3, None, 0.5), torch.rand(4, 8)
    assert torch.equal(net.eval().classify(z), net.classifier(z))
    models.seed_dropout(net.train(), generator())
    keep = torch.rand(z.shape, generator=generator()) >= 0.5
    torch.testing.assert_close(net.classify(z), net.classifier(z * keep * 2))
    models.seed_dropout(net, generator())
    logits = net(z).logits
    models.seed_dropout(net, generator())
    assert torch.equal(net.classify(z), logits)


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [("digits-cnn", 8, ["fc1"]), ("simple-cnn", 28, ["fc1", "fc2"]), ("mnist-cnn", 28, ["fc1"]), ("resnet-10", 32, [])],
)
def test_linear_layers_of_an_encoder_are_numbered_by_name(name, side, expected):
    encoder = models.build(name, 10, side=side, projection_head=False).encoder
    assert [n for n, m in encoder.named_modules() if isinstance(m, torch.nn.Linear)] == expected


# ImageNet weights


@pytest.fixture
def imagenet(monkeypatch):
    """A ResNet-18 of torchvision's, with 1,000 outputs, instead of the one that it would download."""
    with torch.random.fork_rng():
        state = {n: v + 1 for n, v in resnet.resnet18().state_dict().items()}
    monkeypatch.setattr(resnet.ResNet18_Weights, "get_state_dict", lambda self, **_: state)
    return state


@pytest.mark.parametrize("name", ["resnet-18-7x7", "resnet-18-7x7-stride-1-4"])
def test_imagenet_weights_are_put_everywhere_but_into_first_and_last_layer(imagenet, name):
    trained, random = (models.build(name, 10, projection_head=False, pretrained=flag).state_dict() for flag in (True, False))
    own = {"conv1", "bn1", "classifier"}
    for entry, value in trained.items():
        layer = entry.removeprefix("encoder.")
        if layer.split(".")[0] in own:
            assert torch.equal(value, random[entry]), entry
        else:
            assert torch.equal(value, imagenet[layer]), entry
            assert not torch.equal(value, random[entry]), entry
    kept = {n for n in imagenet if n.split(".")[0] not in {"conv1", "bn1", "fc"}}
    assert {n.removeprefix("encoder.") for n in trained} >= kept
    assert len(kept) > 100


@pytest.mark.parametrize("error", [URLError("no route to host"), RuntimeError("invalid hash value")])
def test_imagenet_weights_that_cannot_be_reached_are_one_sentence_that_says_what_to_do(monkeypatch, error):
    def fail(self, **_):
        raise error

    monkeypatch.setattr(resnet.ResNet18_Weights, "get_state_dict", fail)
    with pytest.raises(
        ValueError, match=r"cannot be loaded \(.*(no route|invalid).*\): .* resnet18-\w+\.pth .* pretrained=False\.$"
    ) as told:
        models.build("resnet-18-7x7", 10, projection_head=False, pretrained=True)
    assert "\n" not in str(told.value)


def test_networks_without_imagenet_weights_say_so():
    with pytest.raises(ValueError, match="no ImageNet weights for model 'simple-cnn': leave pretrained at None or False"):
        models.build("simple-cnn", 10, pretrained=True)


# --- precision


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", ["simple-cnn", "resnet-10-16"])
def test_layers_in_bfloat16_give_nearly_the_same_and_all_else_stays_float32(name, train):
    plain, rounded = (models.build(name, 10, precision=p).train(train) for p in ("float32", "bf16"))
    x = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    seen = []
    rounded.encoder.register_forward_hook(lambda module, given, output: seen.append(output.dtype))
    for exact, near in zip(plain(x), rounded(x), strict=True):
        assert near.dtype == torch.float32
        assert 0 < (near - exact).norm() < 0.05 * exact.norm()
    assert seen == [torch.bfloat16]
    rounded(x).logits.square().sum().backward()
    assert {p.grad.dtype for p in rounded.parameters()} == {torch.float32}
    assert {v.dtype for v in rounded.state_dict().values()} <= {torch.float32, torch.int64}


def test_frozen_networks_have_the_precision_of_the_one_that_asks():
    rounded = models.build("simple-cnn", 10, precision="bf16").eval()
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (z,) = rounded.frozen([rounded.state_dict()], x)
    assert torch.equal(z, rounded(x).representation)
    assert not torch.equal(z, models.build("simple-cnn", 10).eval()(x).representation)
