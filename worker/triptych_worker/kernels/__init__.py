"""Operations of a model that PyTorch's kernels leave slow on a CPU, compiled by LLVM when a worker
starts: products with a weight, attention, rotation by positions, and norms of rows."""
