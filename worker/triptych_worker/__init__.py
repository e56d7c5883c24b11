"""The encode, prefill, decode and fused stages on torch and transformers."""
