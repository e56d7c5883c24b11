"""Takes out of an environment what its image can never use.

In every image: what only compilers read, since it holds none; cuSOLVER's part for several GPUs,
which nothing is linked with; NIXL's kernels for experts, built for older versions of torch.

On a CPU also what CUDA is: PyTorch from PyPI is linked against it, so its libraries must be found
when torch is imported, though no function of theirs is called. Small ones stay; the large ones
become empty libraries of the same name, and Python looks functions up only when they are called.
What is only loaded by name, on a GPU, goes.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
from pathlib import Path

UNUSED = (
    "nvidia/*/include",
    "nvidia/*/lib/*.a",
    "nvidia/*/lib/*.bc",
    "nvidia/cu13/lib/libcusolverMg.so.*",
    "nixl_ep_cu*",
    "torch/include",
)
LOADED_ON_A_GPU = (
    "nvidia/cudnn/lib/libcudnn_*",
    "nvidia/cu13/lib/libnvperf_*",
)
EMPTIED = (
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcufftw",
    "libcusolver",
    "libcusparse",
    "libcusparseLt",
    "libnccl",
    "libnvJitLink",
    "libnvblas",
    "libnvrtc",
)
LAZILY = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"
PAGE = 0x1000


def main(environment: Path, accelerator: str) -> None:
    """Slims the virtual environment for ``accelerator``, cuda or cpu, and says by how much."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    freed = _remove_all(packages, UNUSED)
    if accelerator == "cpu":
        freed += _remove_all(packages, LOADED_ON_A_GPU) + _empty_all(packages)
        (packages / "lazily.pth").write_text(LAZILY)
    sys.stdout.write(f"slim: {freed >> 20} MiB less\n")


def empty_library(soname: str) -> bytes:
    """An x86-64 shared library that defines nothing: one loaded segment with the header, the
    program headers and a dynamic section whose tables are as small as the loader takes."""
    strings = b"\0" + soname.encode() + b"\0"
    header_size, program_size, entry_size, entries = 64, 56, 16, 7
    symbol = bytes(24)  # the first of every symbol table, which stands for none
    hashes = struct.pack("<IIII", 1, 1, 0, 0)  # one empty bucket
    tables = header_size + 2 * program_size
    dynamic = tables + len(symbol) + len(hashes)
    text = dynamic + entries * entry_size
    total = text + len(strings)
    table = struct.pack(
        "<QQQQQQQQQQQQQQ",
        *(14, 1),  # DT_SONAME
        *(5, text),  # DT_STRTAB
        *(10, len(strings)),  # DT_STRSZ
        *(6, tables),  # DT_SYMTAB
        *(11, len(symbol)),  # DT_SYMENT
        *(4, tables + len(symbol)),  # DT_HASH
        *(0, 0),  # DT_NULL
    )
    loaded = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, total, total, PAGE)  # PT_LOAD, read and write
    found = struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, len(table), len(table), 8)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, header_size, 0, 0, header_size, program_size, 2, 64, 0, 0
    )
    return header + loaded + found + symbol + hashes + table + strings


def _remove_all(packages: Path, patterns: tuple[str, ...]) -> int:
    return sum(_remove(path) for pattern in patterns for path in sorted(packages.glob(pattern)))


def _empty_all(packages: Path) -> int:
    freed = 0
    for name in EMPTIED:
        for library in sorted(packages.glob(f"nvidia/*/lib/{name}.so.*")):
            freed += _remove(library)
            library.write_bytes(empty_library(library.name))
    return freed


def _remove(path: Path) -> int:
    if path.is_dir():
        size = sum(file.lstat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
        return size
    size = path.stat().st_size
    path.unlink()
    return size


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Takes out what an image can never use.")
    parser.add_argument("environment", type=Path)
    parser.add_argument("accelerator", choices=("cuda", "cpu"))
    main(**vars(parser.parse_args()))
