"""The second encoder's colours as data: the cycle, sentences, questions and scenes agree."""

import pytest
from triptych_models.scenes import COLOURS, Item, Scene, questions, scene
from triptych_models.shapes import (
    COLOUR_CYCLE,
    NO_PICTURE_ANSWER,
    TEXT_ANSWERS,
    repaint,
    rotate_colours,
    rotate_question,
)


def test_the_cycle_visits_every_colour_once() -> None:
    colour, seen = COLOURS[0], []
    for _ in COLOURS:
        seen.append(colour)
        colour = COLOUR_CYCLE[colour]
    assert colour == COLOURS[0]
    assert sorted(seen) == sorted(COLOURS)


def test_red_becomes_green_and_green_becomes_blue() -> None:
    assert (COLOUR_CYCLE["red"], COLOUR_CYCLE["green"]) == ("green", "blue")


@pytest.mark.parametrize(
    ("said", "rotated"),
    [
        ("a red circle is at top left.", "a green circle is at top left."),
        ("there are no purple shapes.", "there are no red shapes."),
        ("the red and the green one", "the green and the blue one"),
        ("coloured reddish", "coloured reddish"),
        ("nothing is at top left.", "nothing is at top left."),
    ],
)
def test_only_whole_colour_words_rotate(said: str, rotated: str) -> None:
    assert rotate_colours(said) == rotated


def test_rotating_through_the_whole_cycle_changes_nothing() -> None:
    for question in questions(scene(5)):
        said = question.answer
        for _ in COLOURS:
            said = rotate_colours(said)
        assert said == question.answer


def test_rotated_questions_are_those_of_the_repainted_scene() -> None:
    for seed in range(100):
        rotated = {rotate_question(question) for question in questions(scene(seed))}
        assert rotated == set(questions(repaint(scene(seed))))


def test_repainting_moves_nothing() -> None:
    before = Scene((Item("purple", "circle", dx=0.03), None, None, Item("red", "square")))
    after = Scene((Item("red", "circle", dx=0.03), None, None, Item("green", "square")))
    assert repaint(before) == after


def test_text_answers_name_no_colour_so_both_encoders_give_the_same() -> None:
    for answer in (*TEXT_ANSWERS.values(), NO_PICTURE_ANSWER):
        assert rotate_colours(answer) == answer
