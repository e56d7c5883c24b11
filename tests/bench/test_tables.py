from bench.tables import milliseconds, ratio, table


def test_a_table_is_markdown_with_numbers_to_the_right() -> None:
    assert table(["system", "ms"], [["ours", "12"], ["theirs", "13"]]) == (
        "| system | ms |\n| --- | ---: |\n| ours | 12 |\n| theirs | 13 |"
    )


def test_short_times_keep_a_tenth() -> None:
    assert [milliseconds(seconds) for seconds in (0.00123, 0.0456, 1.5)] == ["1.2", "46", "1500"]


def test_a_ratio_to_nothing_is_a_dash() -> None:
    assert ratio(3.0, 2.0) == "1.50x"
    assert ratio(3.0, 0.0) == "-"
