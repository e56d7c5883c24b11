"""Complete model folders with tiny random weights, one per family, saved by transformers itself.

``build(family, path)`` writes configuration, weights, tokenizer, processor and chat template, the
same each time. Weights are drawn wide, so that answers depend on every token and every picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

CONTEXT: Final = 4096
HIDDEN: Final = 64

_QWEN_SPECIAL: Final = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_SMOLVLM_SPECIAL: Final = (
    "<|endoftext|>", "<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)  # fmt: skip
_SENTENCES: Final = (
    "What is in the picture? The picture shows a red circle and a blue square.",
    "How many shapes are there? There are three: one is green, two are yellow.",
    "Compare the first picture with the second. They are equal. They are not equal.",
    "user assistant system User Assistant describe this image in one sentence please",
)
_QWEN_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SMOLVLM_TEMPLATE: Final = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def build(family: str, path: Path) -> Path:
    """Writes the folder of ``family`` (a value of ``weights.Family``) at ``path``."""
    return BUILDERS[family](path)


def qwen2_vl(path: Path) -> Path:
    """Qwen2-VL: untied output, in several weight files."""
    tokenizer = _tokenizer(_QWEN_SPECIAL, eos="<|im_end|>")
    config = Qwen2VLConfig(
        text_config=_qwen_text(tokenizer, rope=[2, 3, 3]),
        vision_config={
            "depth": 2, "embed_dim": 32, "hidden_size": HIDDEN, "num_heads": 2, "mlp_ratio": 2,
            "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        tie_word_embeddings=False,
        **_qwen_tokens(tokenizer),
    )  # fmt: skip
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=_pixels(28)),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=_pixels(28)),
        chat_template=_QWEN_TEMPLATE,
    )
    return _save(path, Qwen2VLForConditionalGeneration, config, processor, shard="100KB")


def qwen2_5_vl(path: Path) -> Path:
    """Qwen2.5-VL: untied output, one window block and one full block in the vision part."""
    tokenizer = _tokenizer(_QWEN_SPECIAL, eos="<|im_end|>")
    config = Qwen2_5_VLConfig(
        text_config=_qwen_text(tokenizer, rope=[2, 3, 3]),
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
            "out_hidden_size": HIDDEN, "fullatt_block_indexes": [1], "window_size": 56,
            "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        tie_word_embeddings=False,
        **_qwen_tokens(tokenizer),
    )  # fmt: skip
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=_pixels(28)),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(size=_pixels(28)),
        chat_template=_QWEN_TEMPLATE,
    )
    return _save(path, Qwen2_5_VLForConditionalGeneration, config, processor)


def qwen3_vl(path: Path) -> Path:
    """Qwen3-VL: tied output, head size apart from the hidden size, two deepstack levels."""
    tokenizer = _tokenizer(_QWEN_SPECIAL, eos="<|im_end|>")
    text = _qwen_text(tokenizer, rope=[4, 2, 2]) | {"head_dim": 16}
    config = Qwen3VLConfig(
        text_config=text,
        vision_config={
            "depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
            "out_hidden_size": HIDDEN, "deepstack_visual_indexes": [0, 1],
            "num_position_embeddings": 64, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        tie_word_embeddings=True,
        **_qwen_tokens(tokenizer),
    )  # fmt: skip
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            size=_pixels(32), patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=_pixels(32)),
        chat_template=_QWEN_TEMPLATE,
    )
    return _save(path, Qwen3VLForConditionalGeneration, config, processor)


def smolvlm(path: Path) -> Path:
    """SmolVLM: plain positions, a picture split into tiles whose spans are not contiguous."""
    tokenizer = _tokenizer(_SMOLVLM_SPECIAL, eos="<end_of_utterance>")
    token = tokenizer.convert_tokens_to_ids
    config = SmolVLMConfig(
        text_config=LlamaConfig(
            **_text_shape(tokenizer),
            eos_token_id=token("<end_of_utterance>"),
            bos_token_id=token("<|im_start|>"),
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ).to_dict(),
        vision_config={
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
        },
        image_token_id=token("<image>"),
        pad_token_id=token("<|endoftext|>"),
        scale_factor=2,
        tie_word_embeddings=True,
    )  # fmt: skip
    sizes = {"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}}
    tokenizer.fake_image_token = "<fake_token_around_image>"
    tokenizer.image_token = "<image>"
    tokenizer.end_of_utterance_token = "<end_of_utterance>"
    tokenizer.global_image_token = "<global-img>"
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(**sizes),
        image_seq_len=4,
        chat_template=_SMOLVLM_TEMPLATE,
    )
    return _save(path, SmolVLMForConditionalGeneration, config, processor)


BUILDERS: Final[Mapping[str, Callable[[Path], Path]]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "smolvlm": smolvlm,
}


def _pixels(unit: int) -> dict[str, int]:
    """Pictures of 1 to 64 visual tokens, each of ``unit`` times ``unit`` pixels."""
    return {"shortest_edge": unit * unit, "longest_edge": 64 * unit * unit}


def _text_shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    }


def _qwen_text(tokenizer: PreTrainedTokenizerFast, rope: list[int]) -> dict[str, object]:
    return _text_shape(tokenizer) | {
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": rope,
        },
    }


def _qwen_tokens(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def _tokenizer(special: Iterable[str], eos: str) -> PreTrainedTokenizerFast:
    special = tuple(special)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        min_frequency=1,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos,
        pad_token="<|endoftext|>",
        additional_special_tokens=list(special[1:]),
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _save(
    path: Path,
    architecture: type[PreTrainedModel],
    config: PreTrainedConfig,
    processor: ProcessorMixin,
    shard: str = "1GB",
) -> Path:
    model = architecture(config).eval()
    _draw_weights(model)
    eos = processor.tokenizer.convert_tokens_to_ids(processor.tokenizer.eos_token)
    pad = processor.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=[eos, pad], pad_token_id=pad
    )
    model.save_pretrained(path, max_shard_size=shard)
    processor.save_pretrained(path)
    return path


def _draw_weights(model: PreTrainedModel) -> None:
    """Matrices with a gain above one and norms around one: deep enough to mix, never saturated."""
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter.copy_((0.0 if "bias" in name else 1.0) + 0.1 * noise)
            elif "embed_tokens" in name or "pos_embed" in name or "position_embedding" in name:
                parameter.copy_(0.2 * noise)  # below what the layers add, or tied answers only echo
            else:
                fan_in = parameter[0].numel()
                parameter.copy_(1.5 * noise / math.sqrt(fan_in))
