"""Tokenizers of the two kinds that models have, small enough to see through."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

WORDS = ("the", "red", "circle", "is", "there")


def byte_level() -> Tokenizer:
    """Token ``i`` is byte ``i`` (like GPT-2's and Qwen's), and 256 is the special ``<end>``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=0, initial_alphabet=[], show_progress=False)
    tokenizer.train_from_iterator([], trainer)
    alphabet = {_spelling(byte): byte for byte in range(256)}
    tokenizer.model = models.BPE(vocab=alphabet, merges=[])
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Words with a leading space each (like Llama's), bytes for all else; the last is ``</s>``."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {f"\u2581{word}": 256 + rank for rank, word in enumerate(WORDS)}
    vocab["\u2581"] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


def _spelling(byte: int) -> str:
    """How a byte-level tokenizer writes a byte, learned from its own pre-tokenizer."""
    if byte < 0x80:
        return _spell(bytes([byte]))
    lead = b"\xc2" if byte < 0xC0 else None
    if lead:
        return _spell(lead + bytes([byte]))[1]
    for text in _samples():
        spelled = _spell(text)
        if byte in text:
            return spelled[text.index(byte)]
    return chr(byte)  # 0xC0, 0xC1, 0xF5 and up begin no character; they stand for themselves


def _spell(text: bytes) -> str:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in split.pre_tokenize_str(text.decode()))


def _samples() -> list[bytes]:
    two = [bytes([lead, 0x80]) for lead in range(0xC2, 0xE0)]
    three = [bytes([lead, 0xA0 if lead == 0xE0 else 0x80, 0x80]) for lead in range(0xE0, 0xF0)]
    four = [bytes([lead, 0x90 if lead == 0xF0 else 0x80, 0x80, 0x80]) for lead in range(0xF0, 0xF5)]
    return [*two, *three, *four]
