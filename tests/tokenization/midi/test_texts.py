from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.midi_files import END, meta, midi_file, note
from tokenization.midi import read_midi
from tokenization.midi.texts import decode_text, detect_encoding

NAMES = {
    "gb18030": ["鼓组", "钢琴", "贝斯", "主旋律", "小提琴", "月亮代表我的心"],
    "utf-16": ["Klavier ä", "鋼琴"],
    "utf-8-sig": ["Klavier ä", "鋼琴"],
    "koi8_r": ["Ударные", "Гитара", "фортепиано", "Соло гитара"],
    "cp1251": ["Ударные", "Гитара", "БАРАБАНЫ", "Соло гитара", "Скрипка № 1"],
    "cp932": ["ピアノ", "ドラム", "メロディ", "弦楽", "右手", "主旋律"],
    "euc_kr": ["피아노", "드럼", "베이스", "플루트", "멜로디"],
    "big5": ["鋼琴", "鼓組", "主旋律"],
    "cp1253": ["Φλάουτο", "Πιάνο", "Κρουστά", "Κιθάρα", "Μπάσο"],
    "cp850": ["Flöte", "Schlagzeug für alle", "Flûte à bec"],
    "mac_roman": ["Flûte", "Piano électrique", "Flöte", "Guitarra eléctrica"],
    "cp1252": ["Flöte", "Guitarra eléctrica", "Órgano", "Cordes à vide", "“Solo”", "© 2020"],
}


@pytest.mark.parametrize("encoding", NAMES)
def test_names_are_read_in_the_encodings_of_programs_in_use(encoding):
    for texts in (NAMES[encoding], *([name] for name in NAMES[encoding])):
        contents = [text.encode(encoding) for text in texts]
        assert [decode_text(each, detect_encoding(contents)) for each in contents] == texts


@given(texts=st.lists(st.text()))
def test_utf_8_comes_first(texts):
    contents = [text.encode("utf-8", "ignore") for text in texts]
    assert detect_encoding(contents) == "utf-8"
    assert [decode_text(each, "utf-8") for each in contents] == [each.decode() for each in contents]


@given(contents=st.lists(st.binary()))
def test_any_bytes_are_read(contents):
    encoding = detect_encoding(contents)
    assert all(isinstance(decode_text(each, encoding), str) for each in contents)


def test_all_texts_of_a_file_decide_together():
    lyrics = "".join(NAMES["cp932"]).encode("cp932")
    kana = "ｷﾞﾀｰ".encode("cp932")  # alone, they are Chinese characters as well
    file = midi_file(meta(3, kana) + note(60) + meta(5, lyrics) + END)
    assert read_midi(file).tracks[0].name == "ｷﾞﾀｰ"


def test_a_utf_8_name_beside_others_stays():
    texts = ["钢琴".encode(), "Гитара".encode("cp1251"), b"Bass"]
    encoding = detect_encoding(texts)
    assert [decode_text(text, encoding) for text in texts] == ["钢琴", "Гитара", "Bass"]
