"""The kernels of `fednb.gpu` in Triton's interpreter on a CPU, against float64 and against the plain loop."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import in_interpreter
import pytest
import torch
from torch import nn

from fednb import models
from fednb.gpu import fused, stacked

CASES = {
    "padding, pooled": {"images": (3, 9, 8), "out": 5, "padding": (1, 1)},
    "sides that differ": {
        "images": (2, 11, 9),
        "out": 3,
        "kernel": (4, 1),
        "stride": (2, 1),
        "padding": (2, 0),
    },
    "without bias": {"images": (3, 9, 9), "out": 6, "bias": False},
    "more channels than a program has, pooled": {
        "images": (2, 7, 7),
        "out": 20,
        "batch": 1,
        "clients": 1,
    },
    "images for all": {"images": (3, 8, 8), "out": 6, "shared": "x"},
    "weights and biases for all, pooled": {"images": (3, 8, 8), "out": 6, "shared": "wb"},
    "channels last, pooled": {"images": (3, 8, 8), "out": 6, "channels_last": True},
}
for name, case in CASES.items():
    case["pooled"] = name.endswith("pooled")


@pytest.fixture(scope="module")
def interpreted():
    """Call a function of ``in_interpreter`` in a process where Triton's kernels are interpreted.

    Triton reads TRITON_INTERPRET when it is imported, which other tests may have done here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            yield lambda function, *args, **given: pool.submit(function, *args, **given).result()


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_and_its_gradients_are_those_of_float64(interpreted, name):
    errors = interpreted(in_interpreter.convolution_errors, **CASES[name])
    assert len(errors) == (3 if "bias" in CASES[name] else 4)
    assert max(errors) < 1e-6  # of the largest of the numbers


LINEAR = {
    "wider than a block": {"images": 5, "width": 70, "out": 40},
    "more images than a block": {"images": 40, "width": 12, "out": 10},
    "with ReLU": {"images": 5, "width": 70, "out": 40, "relu": True},
    "without bias": {"images": 5, "width": 7, "out": 3, "bias": False},
    "images for all": {"images": 5, "width": 7, "out": 3, "shared": "x"},
    "weights for all": {"images": 5, "width": 7, "out": 3, "shared": "wb"},
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_layer_and_its_gradients_are_those_of_float64(interpreted, name):
    errors = interpreted(in_interpreter.linear_errors, **LINEAR[name])
    assert len(errors) == (3 if "bias" in LINEAR[name] else 4)
    assert max(errors) < 1e-6


def test_losses_and_their_gradients_are_those_of_float64(interpreted):
    assert max(interpreted(in_interpreter.cross_entropy_errors)) < 1e-6
    assert max(interpreted(in_interpreter.normalise_errors)) < 1e-6


def test_a_batch_is_read_as_the_plain_loop_reads_it(interpreted):
    assert interpreted(in_interpreter.batch_error) < 1e-6


def test_kernels_neither_read_nor_write_beside_their_numbers(interpreted):
    assert interpreted(in_interpreter.stays_inside, pooled=True)
    assert interpreted(in_interpreter.stays_inside, pooled=False)


def test_a_step_by_kernels_is_that_of_the_plain_loop(interpreted):
    """MOON's contrast begins in the second round; the first is FedAvg's."""
    error, num_kernels = interpreted(in_interpreter.step_error, "MOON", 2)
    assert error < 1e-4
    assert num_kernels > 0


def test_a_kernel_that_fails_is_told_once_and_training_goes_on_with_products(interpreted):
    lines, is_same = interpreted(in_interpreter.with_failing_kernels)
    (line,) = lines
    assert "products of matrices" in line and "no such instruction" in line
    assert is_same


def test_pooled_layers_are_fused_in_place_and_outside_a_step_are_what_they_were():
    net = models.build("simple-cnn", 10)
    x = torch.randn(2, 3, 32, 32)
    before, names = net(x), list(net.state_dict())
    fused.fuse(net)
    assert sum(isinstance(module, fused.PooledConvolution) for module in net.modules()) == 2
    assert not any(isinstance(module, nn.MaxPool2d) for module in net.modules())
    assert list(net.state_dict()) == names
    torch.testing.assert_close(net(x), before, rtol=0, atol=0)


def test_a_network_with_other_pools_is_left_as_it_is():
    block = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(3, stride=2, padding=1), nn.ReLU())
    fused.fuse(block)
    assert isinstance(block[0], nn.Conv2d)


def test_without_a_gpu_no_kernel_is_used(federate):
    fed = federate(train=stacked.StackedTrainer())
    fed.run_round()
    assert fed.train.kernels is False
