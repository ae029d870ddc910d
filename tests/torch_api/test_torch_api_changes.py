"""The rows about deprecations and removals: well-formed, sourced, and true of the table of names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainlint import torch_api
from trainlint.findings import Level
from trainlint.torch_api import Change, Target, changes, changes_of, exists, offered, reduction_of, verdict
from trainlint.torch_api.changes import FIXES, FORMS

NEW = torch_api.versions()[-1]
ROWS = [pytest.param(row, id=f"{row.names[0]}({row.argument})-{row.form}") for row in changes()]


def one(name: str, argument: str = "", form: str = "") -> Change:
    found = [row for row in changes_of(name) if row.argument == argument and form in ("", row.form)]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_well_formed_and_has_a_source(row: Change) -> None:
    assert len(row.source) > 10
    assert row.help
    assert row.form in FORMS
    assert row.code in ("TL902", "TL901", "TL409", "TL507", "TL506", "TL209")
    assert row.level in (Level.ADVICE, Level.WARNING)
    assert len(set(row.names)) == len(row.names) > 0
    for end in (row.raises, row.removed):
        assert end is None or row.since <= end
    assert bool(row.argument) == (row.form in ("argument", "missing", "overload"))


@pytest.mark.parametrize("row", ROWS)
def test_every_remedy_exists(row: Change) -> None:
    assert [remedy for remedy in row.remedies if not exists(remedy, NEW)] == []
    if row.fix is not None:
        assert row.fix.do in FIXES
        if "." in row.fix.to:
            assert exists(row.fix.to, NEW)


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_names_agrees_with_the_row(row: Change) -> None:
    for name in row.names:
        found = torch_api.lookup(name)
        if row.form in ("use", "module") and row.removed is not None:
            assert found.at(NEW) is not True
            if found.first is not None and found.inside:  # it is in the table: then its last release is known
                assert found.last is not None and found.last < row.removed
        elif row.form != "method" and name != "torch.Tensor.volatile":  # made in C++ for instances only
            assert found.at(NEW) is not False


@pytest.mark.parametrize("row", [row for row in ROWS if row.values[0].form == "argument"])
def test_the_table_of_parameters_agrees_with_the_row(row: Change) -> None:
    for name in row.names:
        found = torch_api.keyword(name, row.argument)
        if row.removed is None:
            assert found.at(NEW) is not False
        else:
            assert found.at(NEW) is False and found.last is not None and found.last < row.removed


def test_no_row_is_there_twice() -> None:
    seen = [(name, row.form, row.argument, row.values) for row in changes() for name in row.names]
    assert sorted(seen) == sorted(set(seen))


def test_the_file_is_plain_json_with_known_fields() -> None:
    text = (Path(torch_api.__file__).parent / "changes.json").read_text(encoding="utf-8")
    fields = {field for row in json.loads(text) for field in row}
    assert fields <= set(Change._fields)


# (name, argument, release, level): what a rule says there
VERDICTS = [
    ("torch.symeig", "", (1, 8), None),
    ("torch.symeig", "", (1, 13), Level.WARNING),
    ("torch.symeig", "", (2, 5), Level.ERROR),
    ("torch.qr", "", (2, 13), Level.WARNING),
    ("torch.qr", "", (2, 14), Level.ERROR),
    ("torch.ger", "", (2, 13), Level.ADVICE),
    ("torch.optim.lr_scheduler.StepLR", "verbose", (2, 1), None),
    ("torch.optim.lr_scheduler.StepLR", "verbose", (2, 5), Level.WARNING),
    ("torch.optim.lr_scheduler.StepLR", "verbose", (2, 7), Level.ERROR),
    ("torch.optim.lr_scheduler.StepLR.step", "epoch", (2, 5), Level.WARNING),
    ("torch.optim.lr_scheduler.OneCycleLR.step", "epoch", (2, 5), Level.WARNING),
    ("torch.optim.lr_scheduler.ReduceLROnPlateau.step", "epoch", (2, 5), Level.WARNING),
    ("torch.nn.modules.loss.MSELoss", "size_average", (2, 5), Level.WARNING),
    ("torch.nn.functional.cross_entropy", "reduce", (2, 5), Level.WARNING),
    ("torch.cuda.amp.autocast", "", (2, 3), None),
    ("torch.cuda.amp.autocast_mode.autocast", "", (2, 5), Level.WARNING),
    ("torch.cuda.amp.GradScaler", "", (2, 5), Level.WARNING),
    ("torch.distributed.pipeline.sync.Pipe", "", (2, 2), None),
    ("torch.distributed.pipeline.sync.Pipe", "", (2, 3), Level.WARNING),
    ("torch.distributed.pipeline.sync.Pipe", "", (2, 13), Level.ERROR),
    ("torch.jit.script", "", (2, 9), None),
    ("torch.jit.script", "", (2, 13), Level.WARNING),
    ("torch.distributed.all_gather_into_tensor", "", (2, 12), None),
    ("torch.distributed.all_gather_into_tensor", "", (2, 13), Level.WARNING),
    ("torch.autograd.Variable", "", (2, 5), Level.ADVICE),
    ("torch.autograd.Variable", "volatile", (2, 5), Level.WARNING),
    ("torch.set_default_tensor_type", "", (2, 0), None),
    ("torch.set_default_tensor_type", "", (2, 5), Level.WARNING),
    ("torch.nn.init.kaiming_normal", "", (2, 5), Level.WARNING),
    ("torch.nn.Softmax", "dim", (2, 5), Level.WARNING),
    ("torchvision.models.resnet18", "pretrained", (2, 5), Level.WARNING),
    ("torchvision.transforms.Scale", "", (2, 5), Level.ERROR),
    ("torch._six", "", (1, 13), None),
    ("torch._six.string_classes", "", (2, 5), Level.ERROR),
    ("torch.distributed.checkpoint.save_state_dict", "", (2, 5), Level.WARNING),
    ("torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict", "", (2, 5), Level.WARNING),
]


@pytest.mark.parametrize(("name", "argument", "number", "level"), VERDICTS)
def test_verdicts_by_release(name: str, argument: str, number: tuple[int, int], level: Level | None) -> None:
    rows = [row for row in changes_of(name) if row.argument == argument and not row.values]
    assert len(rows) == 1
    assert verdict(rows[0], Target((1, 13), number)) is level


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.Upsample",
        "torch.nn.DataParallel",
        "torch.nn.functional.interpolate",
        "torch.amp.autocast",
        "torch.amp.GradScaler",
        "torch.nn.init.kaiming_normal_",
        "torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.step",  # step(epoch) is its documented use
        "torch.utils.data.default_collate",
        "torch.linalg.qr",
        "torch.nn.Module.load_state_dict",
        "my.own.thing",
    ],
)
def test_what_is_in_order_has_no_row(name: str) -> None:
    assert [row for row in changes_of(name) if row.form == "use"] == []
    if name.endswith("step"):
        assert changes_of(name) == ()


def test_an_alias_that_is_not_public_has_a_row_and_the_public_name_has_none() -> None:
    assert one("torch.utils.data.dataloader.default_collate").level is Level.ADVICE
    assert changes_of("torch.utils.data.default_collate") == ()


def test_a_remedy_is_offered_only_if_the_oldest_release_has_it() -> None:
    scaler = one("torch.cuda.amp.GradScaler")
    assert not offered(scaler, Target((2, 2), (2, 6)))
    assert offered(scaler, Target((2, 3), (2, 6)))
    gather = one("torch.distributed.all_gather_into_tensor")
    assert not offered(gather, Target((2, 4), (2, 13)))
    assert offered(gather, Target((2, 13), (2, 13)))
    pin = one("torch.utils.data.DataLoader", "pin_memory_device")
    assert not offered(pin, Target((2, 5), (2, 13)))  # before 2.9 the argument chose the device
    assert offered(pin, Target((2, 9), (2, 13)))


def test_the_amp_fix_names_a_positional_enabled() -> None:
    fix = one("torch.cuda.amp.autocast").fix
    assert fix is not None and fix.safe
    assert (fix.to, fix.first, fix.positional[0]) == ("torch.amp.autocast", '"cuda"', "enabled")


@pytest.mark.parametrize(
    ("size_average", "reduce", "reduction"),
    [(None, None, "mean"), (True, None, "mean"), (False, None, "sum"), (False, True, "sum"), (True, False, "none")],
)
def test_the_old_pair_of_arguments_as_a_reduction(
    size_average: bool | None, reduce: bool | None, reduction: str
) -> None:
    assert reduction_of(size_average, reduce) == reduction


def test_rows_are_found_by_the_argument_alone() -> None:
    names = {name for row in torch_api.changes_of_argument("verbose") for name in row.names}
    assert "torch.optim.lr_scheduler.ReduceLROnPlateau" in names
