"""The libraries that take CUDA's place in the small image, by the system's own loader."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import slim

SITE = "lib/python3.11/site-packages"


def put(environment: Path, name: str, size: int = 100) -> Path:
    path = environment / SITE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="shared libraries of Linux")
def test_an_empty_library_is_one_that_the_loader_takes(tmp_path: Path) -> None:
    library = tmp_path / "libcublas.so.13"
    library.write_bytes(slim.empty_library(library.name))
    loaded = ctypes.CDLL(str(library))
    assert not hasattr(loaded, "cublasCreate_v2")
    assert library.stat().st_size < 512


def test_large_libraries_become_empty_and_small_ones_stay(tmp_path: Path) -> None:
    large = put(tmp_path, "nvidia/cu13/lib/libcublas.so.13", 4096)
    small = put(tmp_path, "nvidia/cu13/lib/libcudart.so.13")
    slim.main(tmp_path, "cpu")
    assert large.read_bytes() == slim.empty_library("libcublas.so.13")
    assert small.read_bytes() == bytes(100)


def test_on_a_cpu_what_only_gpus_load_goes(tmp_path: Path) -> None:
    gone = put(tmp_path, "nvidia/cudnn/lib/libcudnn_engines.so.9")
    kept = [put(tmp_path, "nvidia/cudnn/lib/libcudnn.so.9"), put(tmp_path, "torch/version.py")]
    slim.main(tmp_path, "cpu")
    assert [path.exists() for path in (gone, *kept)] == [False, True, True]


@pytest.mark.parametrize("accelerator", ["cuda", "cpu"])
def test_what_only_compilers_read_goes_from_every_image(tmp_path: Path, accelerator: str) -> None:
    gone = [
        put(tmp_path, "nvidia/nccl/include/nccl.h"),
        put(tmp_path, "nvidia/cu13/lib/libcudart_static.a"),
        put(tmp_path, "nvidia/nvshmem/lib/libnvshmem_device_sm_90.bc"),
        put(tmp_path, "torch/include/torch/extension.h"),
    ]
    slim.main(tmp_path, accelerator)
    assert [path.exists() for path in gone] == [False] * 4


def test_with_gpus_every_library_stays_as_it_is(tmp_path: Path) -> None:
    names = ("cu13/lib/libcublas.so.13", "cudnn/lib/libcudnn_engines.so.9", "nccl/lib/libnccl.so.2")
    libraries = [put(tmp_path, f"nvidia/{name}") for name in names]
    slim.main(tmp_path, "cuda")
    assert [library.read_bytes() for library in libraries] == [bytes(100)] * 3
    assert not (tmp_path / SITE / "lazily.pth").exists()


def test_a_file_that_is_linked_elsewhere_keeps_its_content_there(tmp_path: Path) -> None:
    """Installers link files from their caches."""
    library = put(tmp_path, "nvidia/nccl/lib/libnccl.so.2", 4096)
    cached = tmp_path / "cached"
    cached.hardlink_to(library)
    slim.main(tmp_path, "cpu")
    assert cached.read_bytes() == bytes(4096)
