"""The libraries that take CUDA's place in the small image, by the system's own loader."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import slim_for_cpu

SITE = "lib/python3.11/site-packages"


def put(environment: Path, name: str, size: int = 100) -> Path:
    path = environment / SITE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="shared libraries of Linux")
def test_an_empty_library_is_one_that_the_loader_takes(tmp_path: Path) -> None:
    library = tmp_path / "libcublas.so.13"
    library.write_bytes(slim_for_cpu.empty_library(library.name))
    loaded = ctypes.CDLL(str(library))
    assert not hasattr(loaded, "cublasCreate_v2")
    assert library.stat().st_size < 512


def test_large_libraries_become_empty_and_small_ones_stay(tmp_path: Path) -> None:
    large = put(tmp_path, "nvidia/cu13/lib/libcublas.so.13", 4096)
    small = put(tmp_path, "nvidia/cu13/lib/libcudart.so.13")
    slim_for_cpu.main(tmp_path)
    assert large.read_bytes() == slim_for_cpu.empty_library("libcublas.so.13")
    assert small.read_bytes() == bytes(100)


def test_what_only_gpus_load_goes(tmp_path: Path) -> None:
    gone = [
        put(tmp_path, "triton/compiler.py"),
        put(tmp_path, "nvidia/cudnn/lib/libcudnn_engines.so.9"),
        put(tmp_path, "nixl_ep_cu13/kernels.so"),
    ]
    kept = [put(tmp_path, "nvidia/cudnn/lib/libcudnn.so.9"), put(tmp_path, "torch/version.py")]
    slim_for_cpu.main(tmp_path)
    assert [path.exists() for path in (*gone, *kept)] == [False, False, False, True, True]


def test_a_file_that_is_linked_elsewhere_keeps_its_content_there(tmp_path: Path) -> None:
    """Installers link files from their caches."""
    library = put(tmp_path, "nvidia/nccl/lib/libnccl.so.2", 4096)
    cached = tmp_path / "cached"
    cached.hardlink_to(library)
    slim_for_cpu.main(tmp_path)
    assert cached.read_bytes() == bytes(4096)
