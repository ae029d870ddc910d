"""The table of names: what is known to exist, in which releases."""

from __future__ import annotations

import pytest

from trainlint import torch_api
from trainlint.torch_api import Parameters, canonical, keyword, lookup, parameters

OLD, NEW = (1, 13), torch_api.versions()[-1]

# (name, releases that have it, releases that have it not)
KNOWN = [
    ("torch.compile", [(2, 0), (2, 13)], [OLD]),
    ("torch._six", [OLD], [(2, 0), (2, 13)]),
    ("torch._six.inf", [], [(2, 0), (2, 13)]),
    ("torch.rfft", [], [(2, 0), (2, 13)]),
    ("torch.amp.GradScaler", [(2, 3), (2, 13)], [(2, 2)]),
    ("torch.amp.custom_fwd", [(2, 4)], [(2, 3)]),
    ("torch.amp.autocast", [OLD, (2, 13)], []),
    ("torch.accelerator", [(2, 6)], [(2, 5)]),
    ("torch.accelerator.current_accelerator", [(2, 6)], [(2, 5)]),
    ("torch.distributed.get_default_backend_for_device", [(2, 6)], [(2, 5)]),
    ("torch.nn.functional.scaled_dot_product_attention", [(2, 0), (2, 13)], [(1, 7)]),
    ("torch.nn.attention.sdpa_kernel", [(2, 3)], [(2, 2)]),
    ("torch.nn.RMSNorm", [(2, 4)], [(2, 3)]),
    ("torch.serialization.safe_globals", [(2, 5)], [(2, 4)]),
    ("torch.distributed.pipeline.sync.Pipe", [OLD, (2, 3)], [(2, 4), (2, 13)]),
    ("torch.distributed.pipelining", [(2, 4)], [(2, 3)]),
    ("torch.distributed.all_gather_single", [(2, 13)], [(2, 12)]),
    ("torch.onnx._export", [(2, 4)], [(2, 5), (2, 13)]),
    ("torch.optim.lr_scheduler.LRScheduler", [(2, 0)], [(1, 7)]),
    ("torch.symeig", [OLD, (2, 13)], []),  # it exists, and raises
    ("torch.Tensor.symeig", [OLD, (2, 13)], []),
    ("torch.Tensor.item", [(1, 7), (2, 13)], []),
    ("torch.Tensor.refine_names", [(2, 12)], [(2, 13)]),
    ("torch.nn.Linear.weight", [OLD, (2, 13)], []),
    ("torch.nn.Linear.cuda", [OLD, (2, 13)], []),
    ("torch.float32", [(1, 7), (2, 13)], []),
    ("torch.uint4", [(2, 3), (2, 13)], [(2, 2)]),
    ("torch.cuda.FloatTensor", [(1, 7), (2, 13)], []),
    ("torch.linalg.eigh", [OLD, (2, 13)], []),
    ("torch.fft.rfft", [OLD, (2, 13)], []),
    ("torch.special.gammaln", [OLD, (2, 13)], []),
    ("torch.backends.cudnn.benchmark", [OLD, (2, 13)], []),
    ("torch.backends.mps.is_available", [OLD, (2, 13)], []),
    ("torch.utils.tensorboard.SummaryWriter", [OLD, (2, 13)], []),
    ("torch.has_cuda", [OLD, (2, 13)], []),
    ("torch.func.vmap", [(2, 0)], [(1, 7)]),
    ("functorch.vmap", [OLD, (2, 13)], []),
    ("torchvision.transforms.Resize", [(1, 7), (2, 13)], []),
    ("torchvision.transforms.Scale", [(1, 7)], [OLD, (2, 13)]),
    ("torchvision.transforms.functional_tensor.rgb_to_grayscale", [(2, 1)], [(2, 2)]),
    ("torchvision.models.ResNet18_Weights", [OLD, (2, 13)], []),
    ("torchvision.io.read_video", [(2, 10)], [(2, 11)]),
]


@pytest.mark.parametrize(("name", "there", "gone"), KNOWN)
def test_a_name_is_in_the_releases_that_have_it(
    name: str, there: list[tuple[int, int]], gone: list[tuple[int, int]]
) -> None:
    found = lookup(name)
    assert [number for number in there if found.at(number) is not True] == []
    # Before 2.0 the table does not claim that a name is missing which came later: the stubs of 1.7 leave some out.
    assert [number for number in gone if found.at(number) is True] == []
    assert [number for number in gone if number >= (2, 0) and found.at(number) is not False] == []


@pytest.mark.parametrize(
    "name",
    [
        "torch.fx.optimize",
        "torch.optimize",
        "torch.Module",
        "torch.nn.Functional",
        "torch.nn.Module.foo",
        "torch.Tensor.to_numpy",
        "torch.backends.cudnn.benchmarks",
        "torch.optim.Optimizer.zero_gradients",
        "torchvision.transforms.RandomCropp",
    ],
)
def test_what_no_release_has_is_missing(name: str) -> None:
    found = lookup(name)
    assert (found.first, found.last, found.open) == (None, None, False)
    assert found.at((2, 5)) is False
    assert found.at((1, 10)) is None  # a release between those looked at


@pytest.mark.parametrize(
    "name",
    [
        "numpy.array",
        "torch.npu.is_available",  # a plug-in has it
        "torch.Tensor.npu",
        "torch.ops.aten.mm",
        "torch.classes.my.Thing",
        "torch._dynamo.some_internal_function",
        "torch.nn._reduction.whatever",
        "torch.backends.cuda.matmul.allow_tf32",
        "torch.nn.functional.math",  # imported from elsewhere
        "torch.multiprocessing.cpu_count",  # from multiprocessing import *
        "torch.cuda.memory_allocated.value",
        "torchvision.models.ResNet18_Weights.DEFAULT",
    ],
)
def test_where_the_table_cannot_tell_it_says_so(name: str) -> None:
    assert lookup(name).at((2, 5)) is None


def test_what_lies_under_a_private_module_goes_with_it() -> None:
    assert lookup("torch._dynamo.optimize").at((2, 5)) is None
    assert lookup("torch._dynamo.optimize").at(OLD) is None
    assert lookup("torch._six.string_classes").at((2, 5)) is False


def test_a_release_newer_than_the_table_is_answered_like_the_newest() -> None:
    future = (NEW[0], NEW[1] + 5)
    assert not torch_api.is_known(future)
    assert lookup("torch.compile").at(future) is True
    assert lookup("torch.distributed.pipeline").at(future) is False


def test_kinds_tell_a_module_from_what_can_be_called() -> None:
    assert lookup("torch.utils.checkpoint").kind == "module"
    assert lookup("torch.utils.checkpoint.checkpoint").kind == "function"
    assert lookup("torch.autograd.gradcheck").kind == "function"  # not its module of the same name
    assert lookup("torch.fft").kind == "module"
    assert lookup("torch.optim.Adam").kind == "class"
    assert lookup("torch.float32").kind == "value"
    assert lookup("torch.nn.functional.relu").kind == "function"


def test_one_thing_has_one_canonical_name() -> None:
    assert canonical("torch.optim.Adam") == canonical("torch.optim.adam.Adam") == "torch.optim.adam.Adam"
    assert canonical("torch.nn.MSELoss") == canonical("torch.nn.modules.loss.MSELoss")
    assert canonical("torch.optim.lr_scheduler.StepLR.step") == "torch.optim.lr_scheduler.LRScheduler.step"
    assert canonical("torch.cuda.amp.GradScaler") != canonical("torch.amp.GradScaler")
    assert canonical("my.own.thing") == "my.own.thing"


def test_the_releases_asked_for_are_there() -> None:
    assert {(2, 0), (2, 4), (2, 6), (2, 13)} <= set(torch_api.versions())
    assert list(torch_api.versions()) == sorted(torch_api.versions())
    assert len(torch_api.release_names("torch")) == len(torch_api.release_names("torchvision"))
    assert "2.13.0" in torch_api.release_names()


# (callable, keyword, first and last release)
KEYWORDS = [
    ("torch.optim.lr_scheduler.ReduceLROnPlateau", "verbose", (1, 7), (2, 6)),
    ("torch.optim.lr_scheduler.StepLR", "verbose", (1, 7), (2, 6)),
    ("torch.utils.data.DataLoader", "in_order", (2, 6), NEW),
    ("torch.load", "weights_only", (1, 13), NEW),
    ("torch.load", "mmap", (2, 1), NEW),
    ("torch.optim.AdamW", "fused", (2, 0), NEW),
    ("torch.meshgrid", "indexing", (1, 13), NEW),
    ("torch.nn.CrossEntropyLoss", "label_smoothing", (1, 13), NEW),
    ("torch.distributed.init_process_group", "device_id", (2, 3), NEW),
]


@pytest.mark.parametrize(("name", "argument", "first", "last"), KEYWORDS)
def test_keywords_by_release(name: str, argument: str, first: tuple[int, int], last: tuple[int, int]) -> None:
    found = keyword(name, argument)
    assert (found.first, found.last) == (first, last)


def test_a_keyword_that_is_not_taken_is_missing_unless_anything_is() -> None:
    assert keyword("torch.utils.data.DataLoader", "workers").at((2, 5)) is False
    assert keyword("torchvision.models.resnet18", "pretrained").at((2, 5)) is None  # **kwargs
    assert keyword("torch.max", "dim").at((2, 5)) is True
    assert keyword("my.own.function", "dim").at((2, 5)) is None


def test_parameters_have_their_order() -> None:
    autocast = parameters("torch.cuda.amp.autocast", (2, 5))
    assert autocast == Parameters(("enabled", "dtype", "cache_enabled"), (), False, False)
    newer = parameters("torch.amp.autocast", (2, 5))
    assert newer is not None and newer.position("enabled") == 2 and newer.position("dtype") == 1
    loss = parameters("torch.nn.CrossEntropyLoss", (2, 5))
    assert loss is not None and loss.position("size_average") == 1
    assert parameters("my.own.function", (2, 5)) is None
