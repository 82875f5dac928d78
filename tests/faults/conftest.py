"""Counts the faults injected and survived, over all workers, and prints the table of `make faults`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for place in (HERE, HERE.parent / "training"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

import summary  # noqa: E402 - found through the path above

TALLY = "polyhead fault"


def pytest_collection_finish(session):
    if any(item.path.name == "test_study_faults.py" for item in session.items):
        import children

        children.PRELOADED.append("study_scenarios")


def pytest_addoption(parser):
    parser.addoption("--write-faults", action="store_true", help="write the table into docs/faults.md")


# In memory where there is such a place: thousands of flushes to a busy disk take minutes and test nothing more.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(prefix="polyhead-faults-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shared_path():
    with tempfile.TemporaryDirectory(prefix="polyhead-faults-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def injected(request):
    """``with injected("kind"):`` counts one fault; it is survived when the block ends without an exception."""

    @contextlib.contextmanager
    def one(kind):
        entry = [kind, 0]
        request.node.user_properties.append((TALLY, entry))
        yield
        entry[1] = 1

    return one


class _Counter:
    """In the process that prints: the reports of all workers come here."""

    def __init__(self, config):
        self.config, self.counts = config, {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            for name, value in report.user_properties:
                if name == TALLY:
                    kind, survived = value
                    counts = self.counts.setdefault(kind, [0, 0])
                    counts[0] += 1
                    counts[1] += survived

    def pytest_terminal_summary(self, terminalreporter, exitstatus):
        if self.counts:
            terminalreporter.section("faults")
            terminalreporter.write_line(summary.table(self.counts))
            if self.config.getoption("--write-faults", default=False) and exitstatus == 0:
                terminalreporter.write_line(f"written: {summary.write(self.counts)}")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Counter(config), "polyhead-faults")
