"""From pixels and messages to what the model reads: tensors and token ids."""
