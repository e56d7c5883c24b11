"""The scene generator: what it draws is what it says, and held-out scenes stay held out."""

import pytest
from triptych_models.scenes import (
    HELD_OUT_SEEDS,
    KINDS,
    POSITIONS,
    Item,
    Question,
    Scene,
    draw,
    is_held_out,
    pair_questions,
    questions,
    scene,
)

SEEDS = (*range(200), *HELD_OUT_SEEDS[:200])


def answers(of: Scene) -> dict[str, str]:
    """Answers by question text."""
    return {question.text: question.answer for question in questions(of)}


@pytest.mark.parametrize("seed", [0, 1, 77, HELD_OUT_SEEDS[0]])
def test_a_seed_always_gives_the_same_scene_and_picture(seed: int) -> None:
    assert scene(seed) == scene(seed)
    assert draw(scene(seed)).tobytes() == draw(scene(seed)).tobytes()


def test_scenes_hold_one_to_four_items_that_all_differ() -> None:
    counts = set()
    for seed in SEEDS:
        names = [item.name for item in scene(seed).items]
        assert len(set(names)) == len(names)
        counts.add(len(names))
    assert counts == {1, 2, 3, 4}


def test_no_layout_of_a_training_seed_is_ever_a_held_out_one() -> None:
    assert not any(is_held_out(scene(seed)) for seed in range(500))
    assert all(is_held_out(scene(seed)) for seed in HELD_OUT_SEEDS[:500])


def test_the_split_looks_at_the_layout_and_not_at_the_offsets() -> None:
    plain = Scene((Item("red", "circle"), None, None, None))
    moved = Scene((Item("red", "circle", dx=0.05, radius=0.33), None, None, None))
    assert is_held_out(plain) == is_held_out(moved)


def test_every_question_of_a_hand_written_scene() -> None:
    cells = (Item("red", "circle"), None, Item("red", "square"), Item("blue", "square"))
    assert questions(Scene(cells)) == (
        Question("at", "what is at top left?", "a red circle is at top left."),
        Question("at", "what is at top right?", "nothing is at top right."),
        Question("at", "what is at bottom left?", "a red square is at bottom left."),
        Question("at", "what is at bottom right?", "a blue square is at bottom right."),
        Question("count", "how many shapes are there?", "there are three shapes."),
        Question("count_colour", "how many red shapes are there?", "there are two red shapes."),
        Question("count_colour", "how many green shapes are there?", "there are no green shapes."),
        Question("count_colour", "how many blue shapes are there?", "there is one blue shape."),
        Question(
            "count_colour", "how many yellow shapes are there?", "there are no yellow shapes."
        ),
        Question(
            "count_colour", "how many purple shapes are there?", "there are no purple shapes."
        ),
        Question("colour", "which colour is the circle?", "the circle is red."),
        Question("where", "where is the red circle?", "the red circle is at top left."),
        Question("where", "where is the red square?", "the red square is at bottom left."),
        Question("where", "where is the blue square?", "the blue square is at bottom right."),
        Question(
            "describe",
            "describe the picture.",
            "a red circle is at top left, nothing is at top right, "
            "a red square is at bottom left, a blue square is at bottom right.",
        ),
    )


def test_a_single_shape_is_counted_in_the_singular() -> None:
    alone = Scene((None, None, None, Item("green", "triangle")))
    assert answers(alone)["how many shapes are there?"] == "there is one shape."


def test_no_scene_has_two_answers_to_one_question() -> None:
    for seed in SEEDS:
        asked = questions(scene(seed))
        assert len({question.text for question in asked}) == len(asked)
        assert {question.kind for question in asked} <= set(KINDS)


def test_questions_about_two_pictures_name_the_picture() -> None:
    first = Scene((Item("red", "circle"), None, None, None))
    second = Scene((None, Item("blue", "square"), Item("blue", "circle"), None))
    asked = {q.text: q.answer for q in pair_questions(first, second)}
    assert asked["what is at top left in picture 1?"] == "a red circle is at top left."
    assert asked["what is at top left in picture 2?"] == "nothing is at top left."
    assert asked["how many shapes are in picture 2?"] == "there are two shapes."
    assert asked["describe picture 2."] == answers(second)["describe the picture."]


@pytest.mark.parametrize("size", [112, 168, 224])
def test_pictures_have_the_asked_size(size: int) -> None:
    picture = draw(scene(3), size)
    assert (picture.mode, picture.size) == ("RGB", (size, size))


@pytest.mark.parametrize("place", range(4))
def test_an_item_is_painted_in_its_own_cell_only(place: int) -> None:
    empty = Scene((None, None, None, None))
    cells: list[Item | None] = [None] * 4
    cells[place] = Item("red", "square")
    one = draw(Scene((cells[0], cells[1], cells[2], cells[3])))
    for other in range(len(POSITIONS)):
        left, top = other % 2 * 56, other // 2 * 56
        box = (left, top, left + 56, top + 56)
        same = one.crop(box).tobytes() == draw(empty).crop(box).tobytes()
        assert same == (other != place)
