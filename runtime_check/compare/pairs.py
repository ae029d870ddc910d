"""Pair experiments: the run as it is and the run with the change, both alive, one stopped while the other does a block.

For what cannot be switched inside one process: other source text, other options of a loader. Blocks go ABBA; every
other pair begins with the other arm.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime_check.card import side_by_side_fails
from runtime_check.compare.records import Change, Proposal, Samples
from runtime_check.compare.replicates import Block, Round, block_of, replicate
from runtime_check.compare.sizes import Size
from runtime_check.compare.toggle import WITHOUT_END, samples_of, why_no_effect
from runtime_check.keeper import descendants
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import steps_done
from runtime_check.statistics import median

_POLL_S = 0.2
FEWEST_ROUNDS = 3  # of one pair: fewer make no median
_numbers = itertools.count(1)


class ArmEnded(Exception):
    """One arm's script ended, or failed, before its turn was over."""


class Pairs:
    """`replicate` runs one more pair; `samples` says what is known so far."""

    def __init__(self, session: Session, proposal: Proposal, size: Size, clock: str = "wall") -> None:
        self.session = session
        self.proposals = (proposal,)
        self.size = size
        self.clock = clock
        self.outcomes: list[Outcome] = []
        self._rounds: list[Sequence[Round]] = []  # of each pair
        self._seconds: list[float] = []
        self.too_much: str | None = None  # why two runs do not fit side by side
        self._failure: str | None = None
        self._tried = 0

    def replicate(self) -> None:
        proposal = self.proposals[0]
        begun = time.monotonic()
        pair = run_pair(self.session, proposal.change, self.size, swapped=self._tried % 2 == 1)
        self._tried += 1
        self._seconds.append(time.monotonic() - begun)
        self.outcomes += [outcome for outcome in (pair.a, pair.b) if outcome is not None]
        if pair.b is not None:
            self._failure = self._failure or _no_effect(proposal, pair.b)
        if len(pair.rounds) >= FEWEST_ROUNDS:
            self._rounds.append(pair.rounds)
        elif pair.ended:
            self.too_much = self.too_much or not_side_by_side(pair)
            self._failure = self._failure or pair.ended

    def samples(self) -> list[Samples]:
        proposal = self.proposals[0]
        per_sample = proposal.metric == "sample_time"
        each = [replicate(rounds, self.clock, per_sample) for rounds in self._rounds]
        found = [one for one in each if one is not None]
        return [samples_of(proposal, found, self.clock, median(self._seconds), self._failure)]


def _no_effect(proposal: Proposal, outcome: Outcome) -> str | None:
    if proposal.change.kind == "source":
        return None
    for result in outcome.results[:1]:
        for facts in result.get("changes", ())[:1]:
            return why_no_effect(proposal, facts)
    return None


@dataclass(frozen=True)
class Pair:
    """What one pair gave: whole rounds, both outcomes, and why it ended early if it did."""

    rounds: Sequence[Round]
    a: Outcome | None
    b: Outcome | None
    ended: str | None = None


def not_side_by_side(pair: Pair) -> str | None:
    """Memory ran out in one arm because the other held some: why they go one after the other from here.

    As it is the script fits, or it would not have come to a comparison.
    """
    ran_out = {
        arm: [str(error["message"]) for error in outcome.errors if error["out_of_memory"]]
        for arm, outcome in (("A", pair.a), ("B", pair.b))
        if outcome is not None
    }
    messages = [message for said in ran_out.values() for message in said]
    told = side_by_side_fails(messages, one_alone_fits=True)
    if told is not None or not ran_out.get("A"):
        return told
    return (
        "two runs side by side need more memory than there is: they ran one after the other, so what changed on the "
        "machine in between is in the difference."
    )


def run_pair(session: Session, change: Change, size: Size, swapped: bool) -> Pair:
    """Two launches side by side. Both are over, and nothing of them is left, when this returns or raises."""
    arms = (_Arm(session, None, size), _Arm(session, change, size))
    rounds: list[Round] = []
    ended: str | None = None
    try:
        for arm in arms:
            arm.begin()
        for arm in arms:
            arm.until_ready()
        for arm in arms:  # the first block after the warm-up settles
            arm.block()
        begun = time.monotonic()
        while len(rounds) < size.rounds and (len(rounds) < FEWEST_ROUNDS or time.monotonic() - begun < size.seconds):
            rounds.append(_round(arms, reversed_=(len(rounds) % 2 == 1) != swapped))
    except ArmEnded as end:
        ended = str(end)
    except BaseException:
        session.cancelled.set()
        raise
    finally:
        for arm in arms:
            arm.end()
        session.cancelled.clear()
    for arm in arms:
        if arm.error is not None:
            raise arm.error
    return Pair(rounds, arms[0].outcome, arms[1].outcome, ended)


def _round(arms: tuple[_Arm, _Arm], reversed_: bool) -> list[Block]:
    order = (1, 0, 0, 1) if reversed_ else (0, 1, 1, 0)
    return [block_of(n == 1, arms[n].block()) for n in order]


class _Arm:
    """One of the two launches: a thread that holds it, and the socket on which its process waits for its turn."""

    def __init__(self, session: Session, change: Change | None, size: Size) -> None:
        self.session = session
        self.name = "B" if change is not None else "A"
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.pid: int | None = None
        self._change = change
        self._address = str(session.folder / f"turn{next(_numbers)}")
        self._size = size
        self._server = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._launch, name=f"arm {self.name}", daemon=True)
        self._connection: socket.socket | None = None
        self._lines: Any = None

    def begin(self) -> None:
        self._server.bind(self._address)
        self._server.listen(4)
        self._server.settimeout(_POLL_S)
        self._thread.start()

    def _launch(self) -> None:
        change = self._change
        extra: dict[str, Any] = {
            "lockstep": {"address": self._address, "block": self._size.block},
            "steps": WITHOUT_END,
            "limit_eval_batches": self.session.options.limit_eval_batches,
        }
        if change is not None and change.kind != "source":
            extra["changes"] = [change.for_probe()]
        run = Pass(f"pair {self.name}", extra=extra, overlay=change.overlay if change is not None else {})
        try:
            self.outcome = self.session.launch(run)
        except BaseException as error:
            self.error = error

    def until_ready(self) -> None:
        while self._connection is None:
            try:
                self._connection, _ = self._server.accept()
            except TimeoutError:
                if not self._thread.is_alive():
                    raise ArmEnded(self._why()) from None
        self._connection.settimeout(_POLL_S)
        self._lines = _Lines(self._connection, self._thread)
        self.pid = self._read()["ready"]
        self._stop()

    def block(self) -> dict[str, Any]:
        """Wake it, let it do a block, stop it again."""
        self._wake()
        assert self._connection is not None
        try:
            self._connection.sendall(b"go\n")
        except OSError:
            raise ArmEnded(self._why()) from None
        message = self._read()
        self._stop()
        return message

    def end(self) -> None:
        self._wake()
        if self._connection is not None:
            self._connection.close()  # the process reads the end, writes its result and leaves
        self._server.close()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            os.unlink(self._address)
        except OSError:
            pass

    def _read(self) -> dict[str, Any]:
        line = self._lines.next()
        if line is None:
            raise ArmEnded(self._why())
        message: dict[str, Any] = json.loads(line)
        return message

    def _why(self) -> str:
        which = "with the change" if self.name == "B" else "as it is"
        self._thread.join(timeout=10)
        if self.outcome is not None and self.outcome.exit_code == 0:
            return _too_short(self.outcome, self.session.options.warmup, self._size)
        last = self.outcome.log_tail.rstrip().splitlines()[-1:] if self.outcome is not None else []
        said = f" ({last[0].strip()[:160]})" if last else ""
        return f"the script {which} ended before the comparison was over{said}"

    def _stop(self) -> None:
        self._signal("SIGSTOP")

    def _wake(self) -> None:
        self._signal("SIGCONT")

    def _signal(self, name: str) -> None:
        number = getattr(signal, name, None)
        if self.pid is None or number is None:
            return
        for pid in (self.pid, *descendants(self.pid)):  # its workers too: else a paused arm fetches ahead
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass


def _too_short(outcome: Outcome, warmup: int, size: Size) -> str:
    """Nothing failed: the script came to its end before the last turn."""
    needed = warmup + 1 + (1 + 2 * FEWEST_ROUNDS) * size.block  # the first block settles; then two of each round
    made = max((steps_done(result) for result in outcome.results), default=0)
    return f"the script ends after {made} steps, and this comparison takes {needed} at least: let it make more epochs"


class _Lines:
    """Lines of a socket, given up once the launch behind it is over."""

    def __init__(self, connection: socket.socket, thread: threading.Thread) -> None:
        self._connection = connection
        self._thread = thread
        self._data = b""

    def next(self) -> str | None:
        while b"\n" not in self._data:
            try:
                more = self._connection.recv(65536)
            except TimeoutError:
                if not self._thread.is_alive():
                    return None
                continue
            except OSError:
                return None
            if not more:
                return None
            self._data += more
        line, self._data = self._data.split(b"\n", 1)
        return line.decode("ascii")


def supported() -> bool:
    """Stopping a process and sockets by path: Linux and macOS."""
    return hasattr(signal, "SIGSTOP") and hasattr(socket, "AF_UNIX")
