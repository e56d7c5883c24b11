"""The model that the benchmarks serve: a random-weight Qwen2.5-VL of about 139 million parameters.

Everything comes from one seed, so every machine gets the same folder. The vocabulary is made rather
than trained: bytes, pairs and triples of letters. Only tokens that print as ASCII text can win an
argmax, so a greedy answer never ends early and every token shows in the stream at once.

``python -m bench.model`` makes the folder (once) and prints its path.
"""

from __future__ import annotations

import json
import os
import shutil
import string
from itertools import product
from pathlib import Path
from typing import Final

VERSION: Final = "1"  # change it with anything below: the folder is made anew
SEED: Final = 20
LETTERS: Final = " " + string.ascii_lowercase
SPECIALS: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}"
    "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def cache_root() -> Path:
    """Where everything that benchmarks need and git does not hold is kept."""
    return Path(os.environ.get("TRIPTYCH_CACHE", Path.home() / ".cache" / "triptych"))


def model_folder() -> Path:
    """The Hugging Face folder of the benchmark's model, made on the first call."""
    folder = cache_root() / "bench" / f"qwen2_5_vl-139m-{VERSION}"
    if not folder.is_dir():
        making = folder.with_name(folder.name + ".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        _write_processor(making)
        _write_weights(making)
        making.rename(folder)
    return folder


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-level BPE: 256 bytes, then pairs and triples of letters by merging."""
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415 - slow import, one caller

    tokens = sorted(ByteLevel.alphabet())
    letters = ["Ġ" if letter == " " else letter for letter in LETTERS]
    pairs = list(product(letters, letters))
    triples = [(first + second, third) for first, second in pairs for third in letters]
    tokens += ["".join(merge) for merge in pairs + triples]
    return {token: index for index, token in enumerate(tokens)}, pairs + triples


def _write_processor(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import (  # noqa: PLC0415 - transformers takes seconds to import
        PreTrainedTokenizerFast,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    vocabulary, merges = _vocabulary()
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIALS),
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(),
        chat_template=CHAT_TEMPLATE,
    )
    processor.save_pretrained(folder)
    _name_tokenizer_class(folder / "tokenizer_config.json")


def _name_tokenizer_class(path: Path) -> None:
    """Names the class that loaders of this family look for."""
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "Qwen2TokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n")


def _write_weights(folder: Path) -> None:
    import torch  # noqa: PLC0415 - seconds to import
    from transformers import (  # noqa: PLC0415
        GenerationConfig,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
    )

    vocabulary, _ = _vocabulary()
    special = {token: len(vocabulary) + index for index, token in enumerate(SPECIALS)}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(vocabulary) + len(SPECIALS),
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12],
            },
            "eos_token_id": special["<|im_end|>"],
            "pad_token_id": special["<|endoftext|>"],
            "bos_token_id": None,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 12,
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_heads": 8,
            "out_hidden_size": 768,
            "fullatt_block_indexes": [5, 11],
        },
        image_token_id=special["<|image_pad|>"],
        video_token_id=special["<|video_pad|>"],
        vision_start_token_id=special["<|vision_start|>"],
        vision_end_token_id=special["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(SEED)
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight
        rows[_unprintable(vocabulary)] = 0.0  # a logit of zero never wins
        rows[len(vocabulary) :] = 0.0
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=special["<|im_end|>"],
        pad_token_id=special["<|endoftext|>"],
    )
    model.save_pretrained(folder)


def _unprintable(vocabulary: dict[str, int]) -> list[int]:
    """Ids of single bytes other than letters and the space."""
    letters = {"Ġ", *string.ascii_lowercase}
    return [
        index for token, index in vocabulary.items() if len(token) == 1 and token not in letters
    ]


if __name__ == "__main__":
    print(model_folder())
