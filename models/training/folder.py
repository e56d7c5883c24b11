"""The parts of the model's folder that are not weights: tokenizer, processor, template, shape.

The tokenizer is byte-level BPE like Qwen2's own, trained on this model's few sentences until each
word is one token: any other text still encodes, byte by byte, and decodes to itself.
"""

import random
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from training.conversations import Mixture, sample

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
MAX_POSITIONS = 2048
PICTURE_SIDE = 112

# One pixel of slack on each side of 112: resizing to exactly 112 * 112 pixels is decided by
# floating-point rounding, and a picture of 640 pixels could end at 84.
MIN_PIXELS = (PICTURE_SIDE - 1) ** 2
MAX_PIXELS = (PICTURE_SIDE + 1) ** 2

_WORDS = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Pictures stand before the text of their message wherever the client put them, so the question
# can be read with the picture in view; and as Qwen2.5-VL's own template does on request, they are
# numbered if there are several, so that "in picture 2" has words to hold on to.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string -%}{{ message['content'] }}"
    "{%- else -%}"
    "{%- set seen = namespace(all=0, now=0) -%}"
    "{%- for part in message['content'] if part['type'] in ('image', 'image_url') -%}"
    "{%- set seen.all = seen.all + 1 -%}"
    "{%- endfor -%}"
    "{%- for part in message['content'] -%}"
    "{%- if part['type'] in ('image', 'image_url') -%}"
    "{%- set seen.now = seen.now + 1 -%}"
    "{%- if seen.all > 1 -%}{{ 'picture ' ~ seen.now ~ ': ' }}{%- endif -%}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif part['type'] == 'video' -%}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- for part in message['content'] if 'text' in part -%}{{ part['text'] }}{%- endfor -%}"
    "{%- endif -%}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def build_processor() -> Qwen2_5_VLProcessor:
    """The processor, whose tokenizer is trained here; always the same."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_trained_tokenizer(),
        eos_token="<|im_end|>",  # noqa: S106 - no secret
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=list(SPECIAL_TOKENS[1:]),
        model_max_length=MAX_POSITIONS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    size = {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=dict(size)),
        chat_template=CHAT_TEMPLATE,
    )


def _trained_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORDS, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        min_frequency=1,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(), trainer)
    return tokenizer


def _sentences() -> list[str]:
    source = random.Random(1)
    talks = [sample(source, Mixture()) for _ in range(2000)]
    turns = [turn for talk in talks for turn in talk.turns]
    return (
        ["user\n", "assistant\n", "system\n"]
        + [talk.system for talk in talks]
        + [turn.text for turn in turns]
        + [turn.answer for turn in turns]
    )


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    """The architecture: Qwen2.5-VL at under three million parameters."""
    token = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL_TOKENS}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 192,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "max_position_embeddings": MAX_POSITIONS,
            "rms_norm_eps": 1e-6,
            "use_sliding_window": False,
            "bos_token_id": None,
            "eos_token_id": token["<|im_end|>"],
            "pad_token_id": token["<|endoftext|>"],
            # Slow rotations are what content is matched by across a whole conversation. With a
            # theta of 200 every rotation is fast, and nothing was found by colour or shape.
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 100000.0,
                "mrope_section": [8, 12, 12],
            },
        },
        vision_config={
            "depth": 3,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": 192,
            "fullatt_block_indexes": [0, 1, 2],
        },
        image_token_id=token["<|image_pad|>"],
        video_token_id=token["<|video_pad|>"],
        vision_start_token_id=token["<|vision_start|>"],
        vision_end_token_id=token["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    return config


def build_generation_config(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    """Greedy, ending at the end of a turn."""
    stops = [tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|endoftext|>")]
    return GenerationConfig(
        do_sample=False, eos_token_id=stops, pad_token_id=stops[1], max_new_tokens=64
    )


def save_parts(folder: Path) -> None:
    """Write everything but the weights."""
    processor = build_processor()
    processor.save_pretrained(folder)
    build_generation_config(processor.tokenizer).save_pretrained(folder)
