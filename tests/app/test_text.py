from app.text import listed, plural, printable


def test_texts_for_people():
    assert [plural(number, "bar") for number in (0, 1, 2)] == ["0 bars", "1 bar", "2 bars"]
    assert plural(1234, "note") == "1,234 notes"
    # a printable text does not control a terminal
    assert printable("a\x1b[2J\x07 b\n c\u202e") == "a\ufffd[2J\ufffd b c\ufffd"
    assert listed(["Bass"]) == "Bass"
    assert listed(["Bass", "Piano"]) == "Bass and Piano"
    assert listed([*"abcdefghijk"]) == "a, b, c, d, e, f, g, h and 3 more"
