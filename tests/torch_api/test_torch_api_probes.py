"""The rows about deprecations against an installed torch: what is an error raises, what is a warning warns."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from trainlint.findings import Level
from trainlint.torch_api import Change, changes_of, version

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HERE = version(str(torch.__version__))


def scope() -> dict[str, Any]:
    import functorch
    import torch.ao.quantization.quantize_fx
    import torch.utils.data as data
    from torch import nn
    from torch.optim import lr_scheduler as sched

    x = torch.arange(9.0).reshape(3, 3)
    return {
        "torch": torch,
        "nn": nn,
        "F": nn.functional,
        "data": data,
        "functorch": functorch,
        "sched": sched,
        "x": x,
        "spd": x @ x.T + 3 * torch.eye(3),
        "image": x[None, None],
        "target": torch.tensor([0, 1, 2]),
        "net": nn.Linear(3, 3),
        "optimizer": torch.optim.SGD([nn.Parameter(x)], lr=0.1),
        "Legacy": type("Legacy", (torch.autograd.Function,), {"forward": lambda self, value: value}),
    }


# (name, argument, code that uses it). What it must do is what the row says for the installed release.
PROBES = [
    ("torch.symeig", "", "torch.symeig(spd)"),
    ("torch.Tensor.symeig", "", "spd.symeig()"),
    ("torch.eig", "", "torch.eig(spd)"),
    ("torch.Tensor.eig", "", "spd.eig()"),
    ("torch.solve", "", "torch.solve(x, spd)"),
    ("torch.Tensor.solve", "", "x.solve(spd)"),
    ("torch.lstsq", "", "torch.lstsq(x, spd)"),
    ("torch.Tensor.lstsq", "", "x.lstsq(spd)"),
    ("torch.matrix_rank", "", "torch.matrix_rank(x)"),
    ("torch.qr", "", "torch.qr(x)"),
    ("torch.Tensor.qr", "", "x.qr()"),
    ("torch.cholesky", "", "torch.cholesky(spd)"),
    ("torch.Tensor.cholesky", "", "spd.cholesky()"),
    ("torch.chain_matmul", "", "torch.chain_matmul(x, x)"),
    ("torch.lu", "", "torch.lu(x)"),
    ("torch.Tensor.lu", "", "x.lu()"),
    ("torch.lu_solve", "", "torch.lu_solve(x, *torch.linalg.lu_factor(spd))"),
    ("torch.triangular_solve", "", "torch.triangular_solve(x, spd)"),
    ("torch.Tensor.triangular_solve", "", "x.triangular_solve(spd)"),
    ("torch.svd", "", "torch.svd(x)"),
    ("torch.ger", "", "torch.ger(x[0], x[0])"),
    ("torch.norm", "", "torch.norm(x)"),
    ("torch.range", "", "torch.range(0, 3)"),
    ("torch.cross", "dim", "torch.cross(x, x)"),
    ("torch.meshgrid", "indexing", "torch.meshgrid(x[0], x[0])"),
    ("torch.add", "alpha", "torch.add(x, 2, x)"),
    ("torch.Tensor.add_", "alpha", "x.clone().add_(2, x)"),
    ("torch.addcmul", "value", "torch.addcmul(x, 0.5, x, x)"),
    ("torch.Tensor.addcdiv_", "value", "x.clone().addcdiv_(0.5, x, x)"),
    ("torch.set_default_tensor_type", "", "torch.set_default_tensor_type(torch.FloatTensor)"),
    ("torch.quantize_per_tensor", "", "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)"),
    ("torch.sparse.FloatTensor", "", "torch.sparse.FloatTensor(target[None], x[0])"),
    ("torch.cuda.FloatTensor", "", "torch.cuda.FloatTensor"),
    ("torch.Tensor.type", "dtype", "x.type('torch.DoubleTensor')"),
    ("torch.Tensor.resize", "", "x.resize(9)"),
    ("torch.Tensor.resize_as", "", "x.resize_as(x)"),
    ("torch.Tensor.reinforce", "", "x.reinforce(1)"),
    ("torch.Tensor.volatile", "", "x.volatile"),
    ("torch.Tensor.data", "", "torch.tensor(1.0).data[0]"),
    ("torch.autograd.Variable", "", "torch.autograd.Variable(x)"),
    ("torch.autograd.Variable", "volatile", "torch.autograd.Variable(x, volatile=True)"),
    ("torch.autograd.variable", "", "torch.autograd.variable(1)"),
    ("torch.autograd.Function", "", "Legacy()(x)"),
    ("torch.autograd.profiler.profile", "use_cuda", "torch.autograd.profiler.profile(use_cuda=True)"),
    ("torch.profiler.profile", "use_cuda", "torch.profiler.profile(use_cuda=True)"),
    ("torch.distributions.Distribution.sample_n", "", "torch.distributions.Normal(0.0, 1.0).sample_n(3)"),
    ("torch.cuda.amp.autocast", "", "torch.cuda.amp.autocast(enabled=False)"),
    ("torch.cpu.amp.autocast", "", "torch.cpu.amp.autocast()"),
    ("torch.cuda.amp.GradScaler", "", "torch.cuda.amp.GradScaler(enabled=False)"),
    ("torch.cpu.amp.GradScaler", "", "torch.cpu.amp.GradScaler()"),
    ("torch.cuda.amp.custom_fwd", "", "torch.cuda.amp.custom_fwd(lambda ctx: 1)"),
    ("torch.cuda.amp.custom_bwd", "", "torch.cuda.amp.custom_bwd(lambda ctx: 1)"),
    ("torch.nn.MSELoss", "size_average", "nn.MSELoss(size_average=False)"),
    ("torch.nn.CrossEntropyLoss", "reduce", "nn.CrossEntropyLoss(reduce=False)"),
    ("torch.nn.functional.mse_loss", "size_average", "F.mse_loss(x, x, size_average=True)"),
    ("torch.nn.functional.cross_entropy", "reduce", "F.cross_entropy(x, target, reduce=True)"),
    ("torch.nn.functional.mse_loss", "reduction", "F.mse_loss(x, x, reduction='elementwise_mean')"),
    ("torch.nn.MSELoss", "reduction", "nn.MSELoss(reduction='elementwise_mean')(x, x)"),
    ("torch.nn.Softmax", "dim", "nn.Softmax()(x)"),
    ("torch.nn.LogSoftmax", "dim", "nn.LogSoftmax()(x)"),
    ("torch.nn.Softmin", "dim", "nn.Softmin()(x)"),
    ("torch.nn.functional.softmax", "dim", "F.softmax(x)"),
    ("torch.nn.functional.log_softmax", "dim", "F.log_softmax(x)"),
    ("torch.nn.functional.softmin", "dim", "F.softmin(x)"),
    ("torch.nn.functional.gumbel_softmax", "eps", "F.gumbel_softmax(x, eps=1e-9)"),
    ("torch.nn.NLLLoss2d", "", "nn.NLLLoss2d()"),
    ("torch.nn.Container", "", "nn.Container()"),
    ("torch.nn.Hardtanh", "min_value", "nn.Hardtanh(min_value=0)"),
    ("torch.nn.Hardtanh", "max_value", "nn.Hardtanh(max_value=0)"),
    ("torch.nn.functional.upsample", "", "F.upsample(image, scale_factor=2)"),
    ("torch.nn.functional.upsample_nearest", "", "F.upsample_nearest(image, scale_factor=2)"),
    ("torch.nn.functional.upsample_bilinear", "", "F.upsample_bilinear(image, scale_factor=2)"),
    ("torch.nn.functional.tanh", "", "F.tanh(x)"),
    ("torch.nn.functional.sigmoid", "", "F.sigmoid(x)"),
    ("torch.nn.utils.clip_grad_norm", "", "nn.utils.clip_grad_norm(net.parameters(), 1.0)"),
    ("torch.nn.utils.weight_norm", "", "nn.utils.weight_norm(nn.Linear(2, 2))"),
    *(
        (f"torch.nn.init.{name}", "", f"nn.init.{name}(torch.empty(2, 2))")
        for name in (
            "uniform normal eye xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal".split()
        )
    ),
    ("torch.nn.init.constant", "", "nn.init.constant(torch.empty(2, 2), 0.0)"),
    ("torch.nn.init.dirac", "", "nn.init.dirac(torch.empty(2, 2, 2))"),
    ("torch.nn.init.sparse", "", "nn.init.sparse(torch.empty(2, 2), 0.5)"),
    ("torch.nn.utils.stateless.functional_call", "", "nn.utils.stateless.functional_call(net, {}, x)"),
    ("torch.nn.Module.register_backward_hook", "", "nn.Linear(2, 2).register_backward_hook(print)"),
    ("torch.nn.Module.state_dict", "", "net.state_dict(None, '', False)"),
    ("torch.optim.lr_scheduler.StepLR", "verbose", "sched.StepLR(optimizer, 1, verbose=True)"),
    ("torch.optim.lr_scheduler.ReduceLROnPlateau", "verbose", "sched.ReduceLROnPlateau(optimizer, verbose=True)"),
    ("torch.optim.lr_scheduler.OneCycleLR", "verbose", "sched.OneCycleLR(optimizer, 1, 2, verbose=True)"),
    ("torch.optim.lr_scheduler.StepLR.step", "epoch", "sched.StepLR(optimizer, 1).step(3)"),
    ("torch.optim.lr_scheduler.ReduceLROnPlateau.step", "epoch", "sched.ReduceLROnPlateau(optimizer).step(1.0, 3)"),
    ("torch.optim.lr_scheduler.StepLR.get_lr", "", "sched.StepLR(optimizer, 1).get_lr()"),
    ("torch.optim.lr_scheduler.LRScheduler.print_lr", "", "sched.StepLR(optimizer, 1).print_lr(True, 1, 0.1)"),
    ("torch.utils.data.dataloader._BaseDataLoaderIter.next", "", "iter(data.DataLoader(x)).next()"),
    (
        "torch.utils.data.DataLoader",
        "pin_memory_device",
        "next(iter(data.DataLoader(x, pin_memory=True, pin_memory_device='cuda')))",
    ),
    ("torch.utils.data.dataloader.default_collate", "", "data.dataloader.default_collate([1])"),
    ("torch.utils.data.ConcatDataset.cummulative_sizes", "", "data.ConcatDataset([x]).cummulative_sizes"),
    ("torch.backends.cuda.sdp_kernel", "", "torch.backends.cuda.sdp_kernel()"),
    ("torch.testing.assert_allclose", "", "torch.testing.assert_allclose(x, x)"),
    ("torch.get_autocast_gpu_dtype", "", "torch.get_autocast_gpu_dtype()"),
    ("torch.get_autocast_cpu_dtype", "", "torch.get_autocast_cpu_dtype()"),
    ("torch.is_autocast_cpu_enabled", "", "torch.is_autocast_cpu_enabled()"),
    ("torch.set_autocast_cpu_enabled", "", "torch.set_autocast_cpu_enabled(False)"),
    ("torch.cuda.memory_cached", "", "torch.cuda.memory_cached()"),
    ("torch.cuda.max_memory_cached", "", "torch.cuda.max_memory_cached()"),
    ("torch.has_cuda", "", "torch.has_cuda"),
    ("torch.has_mps", "", "torch.has_mps"),
    ("torch.has_cudnn", "", "torch.has_cudnn"),
    ("torch.has_mkldnn", "", "torch.has_mkldnn"),
    ("torch.jit.script", "", "torch.jit.script(net)"),
    ("torch.jit.trace", "", "torch.jit.trace(net, x)"),
    ("torch.jit.trace", "optimize", "torch.jit.trace(net, x, optimize=True)"),
    ("torch.jit.freeze", "", "torch.jit.freeze(torch.jit.script(net.eval()))"),
    ("torch.jit.quantized.QuantizedLinear", "", "torch.jit.quantized.QuantizedLinear(net)"),
    ("torch.ao.quantization.quantize_dynamic", "", "torch.ao.quantization.quantize_dynamic(nn.Linear(2, 2))"),
    ("torch._utils.is_compiling", "", "torch._utils.is_compiling()"),
    ("torch.library.impl_abstract", "", "torch.library.impl_abstract('a::b')"),
    *((f"functorch.{name}", "", f"functorch.{name}(torch.sin)") for name in "vmap grad jacrev jacfwd hessian".split()),
    ("functorch.make_functional", "", "functorch.make_functional(net)"),
    ("functorch.combine_state_for_ensemble", "", "functorch.combine_state_for_ensemble([net])"),
    ("torch.distributed.reduce_op", "", "torch.distributed.reduce_op.SUM"),
    ("torch._six", "", "__import__('torch._six')"),
    ("torch.rfft", "", "torch.rfft(x, 1)"),
    ("torch.Tensor.fft", "", "x.fft(1)"),
    ("torch.set_deterministic", "", "torch.set_deterministic(True)"),
    ("torch.utils.ffi", "", "__import__('torch.utils.ffi')"),
    ("torch.onnx._export", "", "torch.onnx._export"),
    ("torch.export.export_for_training", "", "torch.export.export_for_training"),
    ("torch.distributed.pipeline", "", "__import__('torch.distributed.pipeline')"),
    ("torch.distributed.all_reduce_multigpu", "", "torch.distributed.all_reduce_multigpu"),
]


def row_of(name: str, argument: str) -> Change:
    found = [row for row in changes_of(name) if row.argument == argument]
    assert len(found) == 1, [row.form for row in found]
    return found[0]


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """Warnings that torch gives once in a process are given each time, and nothing else is said."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        yield
    logging.disable(logging.NOTSET)
    torch.set_warn_always(before)


# Said by torch about this machine, or about how the probe is written.
_BESIDE = (
    "CUDA is not available",
    "no accelerator is found",
    "initialize",
    "Initializing",
    "lr_scheduler.step()` before",
)


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(("name", "argument", "code"), [pytest.param(*probe, id=probe[2]) for probe in PROBES])
def test_torch_does_what_the_row_says(name: str, argument: str, code: str) -> None:
    expected = row_of(name, argument).level_at(HERE)
    names = scope()
    raised = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            eval(code, names)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
    said = [str(warning.message) for warning in caught]
    said = [text for text in said if not any(part in text for part in _BESIDE)]
    if expected is Level.ERROR:
        assert raised
    elif expected is Level.WARNING:
        assert said and not raised
    else:
        assert not said and not raised


@pytest.mark.usefixtures("undisturbed")
def test_stft_without_return_complex_raises_for_real_input() -> None:
    signal = torch.arange(400.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="return_complex"):
            torch.stft(signal, 100)
        torch.stft(signal.to(torch.complex64), 100, onesided=False)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        torch.stft(signal, 100, return_complex=False)


@pytest.mark.usefixtures("undisturbed")
def test_the_rewrites_that_are_called_safe_compute_the_same() -> None:
    names = scope()
    x, spd, image, f = names["x"], names["spd"], names["image"], names["F"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [
            (torch.chain_matmul(x, spd, x), torch.linalg.multi_dot([x, spd, x])),
            (torch.lu(spd)[0], torch.linalg.lu_factor(spd)[0]),
            (torch.ger(x[0], x[1]), torch.outer(x[0], x[1])),
            (f.upsample(image, scale_factor=2), f.interpolate(image, scale_factor=2)),
            (f.upsample_bilinear(image, size=5), f.interpolate(image, size=5, mode="bilinear", align_corners=True)),
            (torch.meshgrid(x[0], x[1])[0], torch.meshgrid(x[0], x[1], indexing="ij")[0]),
            (f.mse_loss(x, x + 1, size_average=False), f.mse_loss(x, x + 1, reduction="sum")),
            (f.mse_loss(x, x + 1, reduce=False), f.mse_loss(x, x + 1, reduction="none")),
            (f.tanh(x), torch.tanh(x)),
            (torch.add(x, 2, x), torch.add(x, x, alpha=2)),
        ]
    for old, new in pairs:
        torch.testing.assert_close(old, new)
