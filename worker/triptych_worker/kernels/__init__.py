"""Operations of a model that PyTorch's kernels leave slow on a CPU, compiled by LLVM when a worker
starts: products of few rows with a weight, and attention of one token over many."""
