"""The OpenAI-compatible front: media, budgets, processor, routing."""
