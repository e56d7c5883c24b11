import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import tiny_models  # noqa: E402
from PIL import Image as PilImage  # noqa: E402
from transformers import AutoProcessor  # noqa: E402
from triptych_contract.config import Model, Processor  # noqa: E402
from triptych_contract.errors import InvalidModel, InvalidRequest, PromptTooLong  # noqa: E402
from triptych_gateway.conversation import Image, Message, Role, Text  # noqa: E402
from triptych_gateway.media.decode import Pixels  # noqa: E402
from triptych_gateway.processors.load import ModelProcessor, load_processor  # noqa: E402

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm")
QWEN = FAMILIES[:3]  # these bound a picture's pixels and shape; SmolVLM takes any
SIZES = ((448, 448), (60, 200), (131, 77))
PICTURE = Image("data:,")


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory) -> Path:
    return tiny_models.build(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def ours(folder) -> ModelProcessor:
    return load_processor(folder, Model(source=f"file://{folder}"))


@pytest.fixture(scope="module")
def theirs(folder):
    return AutoProcessor.from_pretrained(folder)


def picture(width: int, height: int) -> PilImage.Image:
    noise = np.random.default_rng(width * height).integers(0, 256, (height, width, 3))
    return PilImage.fromarray(noise.astype(np.uint8))


def pixels(image: PilImage.Image) -> Pixels:
    return Pixels(image.width, image.height, image.tobytes())


def user(*parts: str | Image) -> Message:
    return Message(Role.USER, tuple(Text(p) if isinstance(p, str) else p for p in parts))


def as_transformers(messages: list[Message]) -> list[dict[str, object]]:
    return [
        {
            "role": str(message.role),
            "content": [
                {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image"}
                for part in message.parts
            ],
        }
        for message in messages
    ]


def conversation_of(count: int) -> list[Message]:
    parts = [part for index in range(count) for part in (f"Picture {index}:\n\n", PICTURE)]
    return [
        Message(Role.SYSTEM, (Text("Answer in one sentence."),)),
        user("How many shapes are there?"),
        Message(Role.ASSISTANT, (Text("There are three."),)),
        user(*parts, " What is in the picture? 你好 \u200b"),
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_token_ids_equal_those_of_transformers(ours, theirs, count):
    messages = conversation_of(count)
    images = [picture(*size) for size in SIZES[:count]]
    layouts = [ours.pictures.process(pixels(image)).layout for image in images]
    text = theirs.apply_chat_template(
        as_transformers(messages), tokenize=False, add_generation_prompt=True
    )
    expected = theirs(text=[text], images=[images] if images else None, return_tensors="pt")
    prompt = ours.prompts.build(messages, layouts)
    assert list(prompt.token_ids) == expected["input_ids"][0].tolist()
    assert len(prompt.pictures) == count
    covered = [
        index
        for placed in prompt.pictures
        for offset, length in placed.runs
        for index in range(offset, offset + length)
    ]
    wanted = (expected["input_ids"][0] == theirs.image_token_id).nonzero().flatten().tolist()
    assert covered == wanted


def test_two_pictures_side_by_side_expand_like_in_transformers(ours, theirs):
    messages = [user(PICTURE, PICTURE)]
    images = [picture(*size) for size in SIZES[:2]]
    layouts = [ours.pictures.process(pixels(image)).layout for image in images]
    text = theirs.apply_chat_template(
        as_transformers(messages), tokenize=False, add_generation_prompt=True
    )
    expected = theirs(text=[text], images=[images], return_tensors="pt")["input_ids"][0].tolist()
    assert list(ours.prompts.build(messages, layouts).token_ids) == expected


def frames(sent, wanted):
    """What the encoder reads: a still picture's one frame stands for every one of a patch."""
    if sent.shape == wanted.shape:
        return sent
    times = wanted.shape[1] // sent.shape[1]
    return sent.view(len(sent), 3, 1, -1).expand(-1, -1, times, -1).reshape(wanted.shape)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_equal_those_of_transformers_for_one_picture_bit_by_bit(ours, theirs, size):
    image = picture(*size)
    text = theirs.apply_chat_template(
        as_transformers([user(PICTURE)]), tokenize=False, add_generation_prompt=True
    )
    expected = theirs(text=[text], images=[[image]], return_tensors="pt")
    processed = ours.pictures.process(pixels(image))
    wanted = expected["pixel_values"]
    wanted = wanted[0] if wanted.ndim == 5 else wanted
    assert torch.equal(frames(processed.tensors["pixel_values"], wanted), wanted)
    if "image_grid_thw" in expected:
        assert processed.layout.grid == tuple(expected["image_grid_thw"][0].tolist())


def test_tensors_of_several_pictures_equal_those_made_together(ours, theirs):
    images = [picture(*size) for size in SIZES]
    text = theirs.apply_chat_template(
        as_transformers([user(PICTURE, PICTURE, PICTURE)]), tokenize=False
    )
    together = theirs(text=[text], images=[images], return_tensors="pt")["pixel_values"]
    apart = [ours.pictures.process(pixels(image)).tensors["pixel_values"] for image in images]
    together = together[0] if together.ndim == 5 else together
    assert torch.equal(frames(torch.cat(apart), together), together)


@pytest.mark.parametrize("place", ["{}", "look: {} here", "{}{}", "a{}\n"])
def test_a_typed_control_token_stays_text(ours, theirs, place):
    for token in theirs.tokenizer.all_special_tokens:
        messages = [user(place.replace("{}", token))]
        prompt = ours.prompts.build(messages, [])
        reference = theirs.apply_chat_template(
            as_transformers(messages),
            tokenize=True,
            add_generation_prompt=True,
            sanitize_control_tokens=True,
            return_dict=True,
        )["input_ids"]
        assert list(prompt.token_ids) == list(itertools.chain.from_iterable(reference))
        clean = ours.prompts.build([user("x")], []).token_ids
        special = theirs.tokenizer.convert_tokens_to_ids(token)
        assert prompt.token_ids.count(special) == clean.count(special)


def test_a_typed_placeholder_beside_a_picture_makes_no_second_one(ours, theirs):
    layout = ours.pictures.process(pixels(picture(60, 60))).layout
    prompt = ours.prompts.build([user(theirs.image_token, PICTURE, theirs.image_token)], [layout])
    assert prompt.token_ids.count(theirs.image_token_id) == layout.visual_tokens


def test_marks_that_a_user_types_cannot_forge_plain_text(ours):
    forged = ours.prompts.build([user("\U000f0000red\U000f0001 circle")], [])
    assert forged.token_ids == ours.prompts.build([user("red circle")], []).token_ids


def test_other_threads_run_while_a_long_prompt_is_encoded(ours):
    long = [user("how many shapes are there? " * 20_000)]

    def longest_pause() -> float:
        """Of this thread while another builds the prompt, as a part of the time that it takes."""
        with ThreadPoolExecutor(1) as pool:
            began = seen = time.perf_counter()
            pause = 0.0
            building = pool.submit(ours.prompts.build, long, [])
            while not building.done():
                time.sleep(0.001)
                before, seen = seen, time.perf_counter()
                pause = max(pause, seen - before)
            return pause / (seen - began)

    assert min(longest_pause() for _ in range(5)) < 0.5


def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(ours):
    text = "how many shapes " * 100_000
    with pytest.raises(PromptTooLong, match=r"1600\d\d\d characters.*context of 2048 tokens"):
        ours.prompts.build([user(text)], [], 2048)


def test_a_text_that_may_fit_is_encoded_however_long(ours):
    text = "how many shapes " * 100
    assert ours.prompts.build([user(text)], [], 2048) == ours.prompts.build([user(text)], [])


def test_more_pictures_than_layouts_are_refused(ours):
    with pytest.raises(InvalidRequest, match="does not take images"):
        ours.prompts.build([user(PICTURE)], [])


@pytest.mark.parametrize("family", QWEN)
def test_overrides_change_the_number_of_visual_tokens(family, tmp_path):
    folder = tiny_models.build(family, tmp_path)
    small = load_processor(
        folder, Model(source="file:///x", processor=Processor(max_pixels=56 * 56))
    )
    plain = load_processor(folder, Model(source="file:///x"))
    image = pixels(picture(448, 448))
    assert small.pictures.process(image).layout.visual_tokens < (
        plain.pictures.process(image).layout.visual_tokens
    )
    assert small.parameters != plain.parameters


@pytest.mark.parametrize("family", QWEN)
def test_a_picture_of_impossible_shape_is_the_clients_fault(family, tmp_path):
    folder = tiny_models.build(family, tmp_path)
    qwen = load_processor(folder, Model(source="file:///x"))
    with pytest.raises(InvalidRequest, match="1 x 400"):
        qwen.pictures.process(pixels(picture(1, 400)))


def test_a_folder_without_configuration_is_not_a_model(tmp_path):
    with pytest.raises(InvalidModel, match="cannot be read"):
        load_processor(tmp_path, Model(source=f"file://{tmp_path}"))
