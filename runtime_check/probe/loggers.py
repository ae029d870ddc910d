"""TensorBoard writes to the run's folder. The other loggers are switched off by their environment variables."""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any

from _trainlint_probe.imports import after_import
from _trainlint_probe.journal import absolute

_WRITERS = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")


def install(config: dict[str, Any]) -> None:
    if config.get("writes") == "allow":
        return
    # With this module there, TensorBoard writes through Python, which is guarded, and not through TensorFlow.
    name = "tensorboard.compat.notf"
    sys.modules.setdefault(name, types.ModuleType(name))
    for writer in _WRITERS:
        after_import(writer, lambda module: _into_the_run(module, config))


def _into_the_run(module: Any, config: dict[str, Any]) -> None:
    """What it makes in the project is moved when the launch ends; a folder elsewhere is stood in for."""
    project = tuple(config.get("project", ()))
    original = module.EventFileWriter.__init__

    @functools.wraps(original)
    def make(self: Any, logdir: Any, *args: Any, **kwargs: Any) -> None:
        place = absolute(logdir)
        if (place + os.sep).startswith(project):
            original(self, logdir, *args, **kwargs)
            return
        os.makedirs(logdir, exist_ok=True)  # the script may put other files beside; it goes again if it stays empty
        stand_in = os.path.join(config["run_dir"], "files", "tensorboard", place.lstrip("/\\").replace(":", ""))
        os.makedirs(stand_in, exist_ok=True)
        original(self, stand_in, *args, **kwargs)
        self._logdir = logdir

    module.EventFileWriter.__init__ = make
