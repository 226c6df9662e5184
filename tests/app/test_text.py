from app.text import listed, plural, printable


def test_a_number_of_things_is_singular_or_plural():
    assert [plural(number, "bar") for number in (0, 1, 2)] == ["0 bars", "1 bar", "2 bars"]
    assert plural(1234, "note") == "1,234 notes"


def test_a_printable_text_does_not_control_a_terminal():
    assert printable("a\x1b[2J\x07 b\n c\u202e") == "a\ufffd[2J\ufffd b c\ufffd"


def test_names_are_listed():
    assert listed(["Bass"]) == "Bass"
    assert listed(["Bass", "Piano"]) == "Bass and Piano"
    assert listed([*"abcdefghijk"]) == "a, b, c, d, e, f, g, h and 3 more"
