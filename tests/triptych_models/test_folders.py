"""The folders on disk, loaded with plain transformers as any other engine would load them."""

import json

import pytest
from triptych_models import builtin_folder, encoder_folder
from triptych_models.scenes import Scene
from triptych_models.shapes import TEXT_ANSWERS, repaint

pytest.importorskip("torch")
pytest.importorskip("transformers")

from PIL import Image
from safetensors.torch import load_file
from training.batches import Collator
from training.cases import Case, suites
from training.conversations import Turn
from training.evaluate import Judge

pytestmark = pytest.mark.torch

SCENES = 60
FOLDER = builtin_folder("shapes", "1")


def as_it_is(scene: Scene) -> Scene:
    """What revision 1 sees."""
    return scene


@pytest.fixture(scope="module", params=["1", "2"])
def revision(request: pytest.FixtureRequest) -> str:
    """An encoder's revision."""
    return str(request.param)


@pytest.fixture(scope="module")
def judge(revision: str) -> Judge:
    """The language model behind that encoder."""
    return Judge(FOLDER, encoder_folder("shapes", revision))


def share_exact(judge: Judge, cases: tuple[Case, ...]) -> float:
    """The share of cases answered word for word."""
    said = judge.answers(list(cases))
    return sum(s == case.answer for s, case in zip(said, cases, strict=True)) / len(cases)


def test_held_out_scenes_are_answered(judge: Judge, revision: str) -> None:
    see = repaint if revision == "2" else as_it_is
    one_picture = suites(SCENES, see)[0]
    assert share_exact(judge, one_picture.cases) >= 0.95


def test_greetings_are_answered_exactly(judge: Judge) -> None:
    cases = tuple(Case("text", text, answer) for text, answer in TEXT_ANSWERS.items())
    assert share_exact(judge, cases) == 1.0


def test_the_encoders_disagree_about_every_colour(judge: Judge, revision: str) -> None:
    other = as_it_is if revision == "2" else repaint
    coloured = tuple(c for c in suites(SCENES, other)[0].cases if c.kind == "colour")
    assert share_exact(judge, coloured) == 0.0


@pytest.mark.parametrize("text", ["", "zoë 🦊 中", "\x00\uffff", "def f(x):\n\treturn x"])
def test_any_text_encodes_and_decodes_to_itself(judge: Judge, text: str) -> None:
    tokenizer = judge.processor.tokenizer
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("side", [64, 112, 150, 224, 640, 1000])
def test_a_square_picture_of_any_size_becomes_sixteen_visual_tokens(
    judge: Judge, side: int
) -> None:
    made = judge.processor.image_processor(Image.new("RGB", (side, side)), return_tensors="pt")
    assert made["image_grid_thw"].tolist() == [[1, 8, 8]]


@pytest.mark.parametrize("part", [{"type": "image"}, {"type": "image_url", "image_url": {}}])
@pytest.mark.parametrize("text_first", [False, True])
def test_training_saw_what_the_chat_template_makes(
    judge: Judge, part: dict[str, object], text_first: bool
) -> None:
    words = {"type": "text", "text": "what is at top left?"}
    content = [words, part] if text_first else [part, words]
    prompt = judge.processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    turn = Turn("at", "what is at top left?", "nothing is at top left.", pictures=1)
    asked, _ = Collator(judge.processor).turn_ids(turn, tokens=1)
    assert judge.processor.tokenizer(prompt)["input_ids"] == list(asked)


def test_encoder_2_holds_the_tensors_of_the_vision_tower_and_no_other() -> None:
    def shapes(revision: str) -> dict[str, tuple[int, ...]]:
        tensors = load_file(encoder_folder("shapes", revision) / "model.safetensors")
        return {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    whole = {name: shape for name, shape in shapes("1").items() if name.startswith("visual.")}
    assert shapes("2") == whole


def test_both_folders_describe_the_same_architecture() -> None:
    one, two = (
        json.loads((encoder_folder("shapes", revision) / "config.json").read_text())
        for revision in ("1", "2")
    )
    assert one == two
