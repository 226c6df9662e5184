"""Parallel text is read from all formats alike, and files that cannot be are refused."""

from __future__ import annotations

import pytest

from tests.support.parallel_files import messages, number_pairs, write_both, write_lines
from training.errors import TrainingError
from training.tasks.transduction.parallel_text import TextPair, read_parallel

PAIRS = [*number_pairs(5), ("naïve\u2028text", "«\u00a0naïf\u00a0»"), ("𝄞", "clé de sol")]


def test_line_files_and_tables_have_the_same_pairs(tmp_path):
    write_both(tmp_path, "a", PAIRS)
    for names in (["a.en", "a.fr"], ["a.tsv"]):
        assert read_parallel(tmp_path, names) == PAIRS


def test_message_files_have_the_messages_with_translations(tmp_path):
    write_both(tmp_path, "a", number_pairs(5))
    assert sorted(read_parallel(tmp_path, ["a.mo"])) == sorted(number_pairs(5))
    content = messages([("menu\x04Open\nfile", "Ouvrir\tle fichier"), ("untranslated", "")])
    (tmp_path / "b.mo").write_bytes(content)
    assert read_parallel(tmp_path, ["b.mo"]) == [("Open file", "Ouvrir le fichier")]


def test_empty_texts_byte_order_marks_and_ends_of_windows_are_left_out(tmp_path):
    (tmp_path / "a.en").write_bytes("\ufeffone\r\n\r\ntwo \r\nthree".encode())
    write_lines(tmp_path / "a.fr", ["un", "rien", "deux", ""])
    assert read_parallel(tmp_path, ["a.en", "a.fr"]) == [("one", "un"), ("two", "deux")]
    write_lines(tmp_path / "a.tsv", ["one\tun\tCC-BY", "", "two\tdeux"])
    assert read_parallel(tmp_path, ["a.tsv"]) == [("one", "un"), TextPair("two", "deux")]


def test_files_that_cannot_be_used_are_refused_in_one_sentence(tmp_path):
    for content, names, message in (
        ({"a.en": "one\ntwo\n", "a.fr": "un\n"}, "a.en a.fr", r"a.en has 2 lines and .*a.fr has 1"),
        ({"a.en": "", "a.fr": ""}, "a.en a.fr", r"a.en and .*a.fr: found no text"),
        ({"a.tsv": ""}, "a.tsv", "a.tsv: found no text with a translation"),
        ({"a.tsv": "one\tun\ntwo\n"}, "a.tsv", "line 2 has no tab"),
        ({"a.en": "one\n\xe9t\xe9\n", "a.fr": "un\n"}, "a.en a.fr", "a.en: line 2 is not UTF-8"),
        ({"a.mo": "\xde\x12\x04"}, "a.mo", "the .mo file is damaged"),
        ({"a.mo": "no messages, but long enough for a header"}, "a.mo", "the .mo file is damaged"),
        ({"a.en": "one\n"}, "a.en b.fr", "b.fr: no such file"),
        ({"a.en": "one\n"}, "a.en", "expected a .tsv file, a .mo file, or two files"),
    ):
        for name, text in content.items():
            (tmp_path / name).write_bytes(text.encode("latin-1"))
        with pytest.raises(TrainingError, match=rf"^[^\n]*{message}[^\n]*$"):
            read_parallel(tmp_path, names.split())
