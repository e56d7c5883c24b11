"""``generate()`` in a loop, as a program that connects to the Unix socket it is given, reads one
request a line and writes one answer a line. Its second argument is the type of the weights.

A request is ``{"seed": int, "tokens": int}``; the answer has the times of ``bench.samples.Sample``.
``{"prepare": [seed, ...]}`` has those pictures made beforehand, and is answered by ``{}``.
What is timed is what a server does too: PNG, processor, generation, tokens to text.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import IO

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.generation.streamers import BaseStreamer

from bench.client import QUESTION
from bench.model import model_folder
from bench.pictures import png


class Moments(BaseStreamer):
    """Notes when each token came; the first call hands over the prompt."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.moments: list[float] = []
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        """The prompt, then a token at a time."""
        if self._prompt_seen:
            self.moments.append(time.perf_counter())
            self.tokens.extend(value.flatten().tolist())
        self._prompt_seen = True

    def end(self) -> None:
        """Nothing is held back."""


def main() -> None:
    """Answers until the socket closes."""
    torch.set_num_threads(os.cpu_count() or 1)
    processor = AutoProcessor.from_pretrained(model_folder())
    model = AutoModelForImageTextToText.from_pretrained(model_folder(), dtype=sys.argv[2]).eval()
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rw")
    for line in stream:
        request = json.loads(line)
        if "prepare" in request:
            for seed in request["prepare"]:
                png(seed)
            _write(stream, {})
            continue
        picture = png(request["seed"])
        began = time.perf_counter()
        image = Image.open(io.BytesIO(picture))
        inputs = processor(text=[prompt], images=[image], return_tensors="pt")
        streamer = Moments()
        model.generate(
            **inputs, do_sample=False, max_new_tokens=request["tokens"], streamer=streamer
        )
        text = processor.tokenizer.decode(streamer.tokens, skip_special_tokens=True)
        answer = {
            "seed": request["seed"],
            "first": streamer.moments[0] - began,
            "last": streamer.moments[-1] - began,
            "total": time.perf_counter() - began,
            "tokens": len(streamer.tokens),
            "text": text,
        }
        _write(stream, answer)


def _write(stream: IO[str], answer: Mapping[str, object]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
