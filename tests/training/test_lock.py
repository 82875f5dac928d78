import os
import subprocess
import sys

import pytest
from training_example import run

from polyhead.errors import PolyheadError
from polyhead.training.lock import folder_lock

HOLDER = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
os.pwrite(handle, f"{os.getpid()}\\n".encode(), 0)
print("held", flush=True)
time.sleep(60)
"""


def test_a_folder_in_use_names_its_owner_and_a_dead_owner_holds_nothing(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(PolyheadError, match=f"a folder where process {holder.pid} trains"):
            run(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [".lock"]
    finally:
        holder.kill()
        holder.wait()
    assert run(tmp_path).finished


def test_two_runs_of_one_process_exclude_each_other(tmp_path):
    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(PolyheadError, match=f"process {os.getpid()} trains"), folder_lock(tmp_path):
            pass
    with folder_lock(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PolyheadError, match="expected a folder that can be written"):
        run(tmp_path / "file" / "run")
