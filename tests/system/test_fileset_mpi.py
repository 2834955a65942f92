# SPDX-License-Identifier: Apache-2.0
"""An unchanged MPI-IO program: four ranks over two mounts write one file together."""
import os
import shutil
import subprocess

import pytest

import conftest
import fileset_mount

MISSING = fileset_mount.missing() or (None if shutil.which("mpicc") and shutil.which("mpirun") else "Open MPI is not installed")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("mpi") / "mpi_records"
    subprocess.run(["mpicc", "-O2", "-Wall", "-Werror", "-o", out, conftest.SOURCE / "tests/system/mpi_records.c"], check=True)
    return out


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with fileset_mount.Mount(tmp_path_factory.mktemp("nodes"), mode="shared") as first, first.second() as second:
        yield first, second
        first.stop()
        second.stop()
        assert '"failed":0' in first.naos("verify", first.below, "--json").replace(" ", "")


@pytest.mark.parametrize("library", ["ompio", "romio321"])
@pytest.mark.parametrize("block,count", [(47008, 20), (4096, 100), (1000, 50)])
@pytest.mark.parametrize("how", ["collective", "independent"])
def test_ranks_on_two_nodes_give_the_right_file(nodes, program, tmp_path, library, block, count, how):
    path = f"{library}-{block}-{how}"
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(tmp_path))
    done = subprocess.run(["mpirun", "--oversubscribe", "-n", "4", "--mca", "io", library, "--mca", "btl", "self,vader", "--mca",
                           "io_ompio_num_aggregators", "4", program,
                           nodes[0].path / path, nodes[1].path / path, str(block), str(count), how],
                          env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"4 ranks, {4 * block * count} bytes, 0 wrong" in done.stdout
