"""The OpenAI-compatible HTTP side: requests in, answers and errors out."""
