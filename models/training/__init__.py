"""How `builtin://shapes` was made: the tokenizer, the conversations, the training, the judging.

These are programs for a developer's machine; nothing that is deployed imports them.
"""
