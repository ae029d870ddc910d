"""What is known by name outside the project: classes by role, functions by what they give back.

Names are the documented ones of torch 2.x, torchvision, and the libraries that training scripts use beside them.
"""

from __future__ import annotations

LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "torch_geometric.loader.NeighborLoader",
        "webdataset.WebLoader",
        "monai.data.DataLoader",
        "monai.data.ThreadDataLoader",
        "dgl.dataloading.GraphDataLoader",
    }
)

DATASETS = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.Subset",
        "torch.utils.data.ConcatDataset",
        "torch.utils.data.ChainDataset",
        "torch.utils.data.StackDataset",
        "torch.utils.data.dataset.Dataset",
        "torch.utils.data.dataset.Subset",
        "torch.utils.data.dataset.IterableDataset",
        "datasets.load_dataset",
        "datasets.load_from_disk",
        "datasets.Dataset",
        "torchvision.datasets.VisionDataset",
    }
)

# wrappers whose call runs what they hold
WRAPPERS = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed._composable.replicate",
        "apex.parallel.DistributedDataParallel",
        "torch.compile",
        "torch.jit.script",
        "torch.jit.trace",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "torch.nn.utils.weight_norm",
        "torch.nn.utils.spectral_norm",
        "torch.nn.utils.parametrizations.weight_norm",
        "torch.nn.utils.parametrizations.spectral_norm",
        "torch.nn.utils.fusion.fuse_conv_bn_eval",
        "apex.parallel.convert_syncbn_model",
        "torch.optim.swa_utils.AveragedModel",
        "copy.deepcopy",
        "copy.copy",
        "peft.get_peft_model",
    }
)

DDP = frozenset(
    {
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "apex.parallel.DistributedDataParallel",
    }
)

DATA_PARALLEL = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
        "torch.nn.parallel.data_parallel",
        "torch.nn.parallel.data_parallel.data_parallel",
    }
)

CONTAINERS = frozenset(
    {"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.modules.container.Sequential"}
)

# modules that prepare data: nothing in them is trained
TRANSFORMS = ("torchaudio.transforms.", "torchvision.transforms.", "kornia.augmentation.", "torch_audiomentations.")

SCALERS = frozenset(
    {
        "torch.cuda.amp.GradScaler",
        "torch.cpu.amp.GradScaler",
        "torch.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
        "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
    }
)

AUTOCASTS = frozenset(
    {
        "torch.autocast",
        "torch.amp.autocast",
        "torch.amp.autocast_mode.autocast",
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
        "torch.cpu.amp.autocast",
    }
)

NO_GRAD = frozenset(
    {
        "torch.no_grad",
        "torch.inference_mode",
        "torch.autograd.no_grad",
        "torch.autograd.grad_mode.no_grad",
        "torch.autograd.grad_mode.inference_mode",
        "torch.autograd.inference_mode",
    }
)
ENABLE_GRAD = frozenset({"torch.enable_grad", "torch.autograd.enable_grad", "torch.autograd.grad_mode.enable_grad"})
SET_GRAD = frozenset({"torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch._C._set_grad_enabled"})

ACCELERATORS = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
FABRICS = frozenset(
    {"lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric", "pytorch_lightning.Fabric"}
)

LIGHTNING_ROOTS = ("pytorch_lightning.", "lightning.", "lightning.pytorch.")
LIGHTNING_MODULES = frozenset(
    {
        "pytorch_lightning.LightningModule",
        "pytorch_lightning.core.LightningModule",
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "lightning.pytorch.core.LightningModule",
    }
)
LIGHTNING_TRAINERS = frozenset({"pytorch_lightning.Trainer", "lightning.Trainer", "lightning.pytorch.Trainer"})
HF_TRAINERS = frozenset(
    {
        "transformers.Trainer",
        "transformers.Seq2SeqTrainer",
        "transformers.trainer.Trainer",
        "trl.SFTTrainer",
        "trl.DPOTrainer",
        "sentence_transformers.SentenceTransformerTrainer",
    }
)
DEEPSPEED_INIT = frozenset({"deepspeed.initialize"})
IGNITE_ENGINES = frozenset({"ignite.engine.Engine"})

PROGRESS = frozenset(
    {
        "tqdm",
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.tqdm_notebook",
        "tqdm.trange",
        "tqdm.rich.tqdm",
        "tqdm.std.tqdm",
        "tqdm.autonotebook.tqdm",
        "rich.progress.track",
        "fastprogress.progress_bar",
        "fastprogress.fastprogress.progress_bar",
        "progressbar.progressbar",
        "alive_progress.alive_it",
        "tqdm.asyncio.tqdm",
        "click.progressbar",
    }
)

# functions under torch whose result is no tensor; a trailing dot stands for everything below
NO_TENSOR = (
    "torch.load",
    "torch.save",
    "torch.device",
    "torch.dtype",
    "torch.Generator",
    "torch.Size",
    "torch.finfo",
    "torch.iinfo",
    "torch.manual_seed",
    "torch.seed",
    "torch.initial_seed",
    "torch.default_generator.",
    "torch.get_rng_state",
    "torch.set_rng_state",
    "torch.set_default_dtype",
    "torch.set_default_device",
    "torch.set_default_tensor_type",
    "torch.set_printoptions",
    "torch.set_float32_matmul_precision",
    "torch.get_default_dtype",
    "torch.set_num_threads",
    "torch.get_num_threads",
    "torch.set_num_interop_threads",
    "torch.use_deterministic_algorithms",
    "torch.is_tensor",
    "torch.is_grad_enabled",
    "torch.is_floating_point",
    "torch.is_complex",
    "torch.is_storage",
    "torch.numel",
    "torch.equal",
    "torch.allclose",
    "torch.can_cast",
    "torch.promote_types",
    "torch.result_type",
    "torch.typename",
    "torch.cuda.",
    "torch.backends.",
    "torch.mps.",
    "torch.xpu.",
    "torch.accelerator.",
    "torch.version.",
    "torch.hub.",
    "torch.utils.",
    "torch.distributed.",
    "torch.multiprocessing.",
    "torch.autograd.",
    "torch.profiler.",
    "torch.jit.",
    "torch.onnx.",
    "torch.fx.",
    "torch.export.",
    "torch.quantization.",
    "torch.ao.",
    "torch.random.",
    "torch.optim.",
    "torch.amp.",
    "torch.overrides.",
    "torch.testing.",
    "torch.package.",
    "torch.library.",
    "torch._dynamo.",
    "torch._inductor.",
    "torch.nn.init.",
    "torch.nn.utils.",
    "torch.no_grad",
    "torch.enable_grad",
    "torch.inference_mode",
    "torch.set_grad_enabled",
    "torch.autocast",
    "torch.set_autocast_enabled",
    "torch.__version__.",
    "torch.compiler.",
)
# exceptions to NO_TENSOR
TENSOR_AFTER_ALL = frozenset(
    {
        "torch.nn.utils.clip_grad_norm_",
        "torch.nn.utils.clip_grad_norm",
        "torch.nn.utils.get_total_norm",
        "torch.nn.utils.parameters_to_vector",
        "torch.nn.utils.rnn.pad_sequence",
        "torch.nn.utils.rnn.pack_padded_sequence",
        "torch.nn.utils.rnn.pack_sequence",
        "torch.nn.utils.rnn.pad_packed_sequence",
        "torch.autograd.grad",
        "torch.autograd.Variable",
        "torch.autograd.variable.Variable",
        "torch.utils.checkpoint.checkpoint",
        "torch.utils.checkpoint.checkpoint_sequential",
        "torch.cuda.FloatTensor",
        "torch.cuda.LongTensor",
        "torch.cuda.DoubleTensor",
        "torch.cuda.HalfTensor",
        "torch.cuda.ByteTensor",
        "torch.cuda.IntTensor",
        "torch.cuda.BoolTensor",
        "torch.autograd.functional.jacobian",
        "torch.autograd.functional.hessian",
        "torch.distributed.nn.functional.all_reduce",
        "torch.distributed.nn.functional.all_gather",
    }
)

FACTORIES = frozenset(
    "torch." + name
    for name in (
        "tensor zeros ones full empty arange linspace logspace eye rand randn randint randperm as_tensor from_numpy "
        "Tensor FloatTensor LongTensor DoubleTensor IntTensor ByteTensor BoolTensor HalfTensor range scalar_tensor "
        "normal empty_strided tril_indices triu_indices hann_window hamming_window complex frombuffer asarray"
    ).split()
)

# tensor methods and attributes whose value is a Python object
NUMBER_METHODS = frozenset(
    "numel nelement dim ndimension stride storage_offset element_size get_device data_ptr size_in_bytes "
    "is_contiguous is_floating_point is_complex is_signed is_set_to is_pinned is_shared equal allclose __len__".split()
)
NUMBER_ATTRIBUTES = frozenset(
    "ndim is_cuda is_mps is_xpu is_leaf requires_grad is_sparse is_quantized is_meta is_cpu itemsize nbytes output_nr "
    "retains_grad is_nested".split()
)
NO_VALUE_METHODS = frozenset("backward register_hook retain_grad share_memory_ record_stream".split())

# tensor methods that only tensors have: using one is proof (numpy arrays have the rest, too)
TENSOR_ONLY_METHODS = frozenset(
    "backward detach detach_ cuda cpu unsqueeze unsqueeze_ contiguous permute requires_grad_ long float half double "
    "bfloat16 expand expand_as type_as new_zeros new_ones new_tensor new_full new_empty masked_fill masked_fill_ "
    "masked_select scatter_ scatter gather index_select softmax log_softmax sigmoid chunk topk view_as numel "
    "is_contiguous add_ mul_ div_ sub_ zero_ fill_ copy_ eq ne ge gt le lt matmul bmm mm sqrt_ clamp clamp_ "
    "pin_memory narrow unbind logsumexp retain_grad split_with_sizes index_fill_ index_add_ nelement "
    "normal_ uniform_ abs_ neg_ pow_ exp_ logical_not erf sqrt rsqrt".split()
)

MODULE_METHODS = frozenset(
    "parameters named_parameters eval state_dict load_state_dict zero_grad modules children".split()
)
