"""Encodings of the texts of a file, which MIDI leaves open.

Names are short, and detectors for long texts guess (charset-normalizer 3.5 reads the GBK name of
drums as Big5). So the encodings of programs in use are compared by how many characters are common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MOST_BYTES: Final = 1 << 16
"""Size of the texts that are compared."""
_TYPICAL: Final = 0.5
"""Weight of the share of typical characters, for encodings that share their common ones."""
_HALF_WIDTH: Final = 0.5
"""Weight of half-width kana, which are single bytes of other encodings."""
_KOREAN: Final = frozenset(
    "이다의에는을를은가고하지로기사도대자한시리어인나아서수그스정것일라주부보전해들제조여구게상과비드"
    "만트미소성오원치마음악노래피타럼베현멜디컬코러랙신바관클곡작편박김최강윤우유선세영안동방연무플루첼르간럼펫올린색폰왼손"
)
_CHINESE: Final = frozenset(
    "的一是不了在人有我他这中大来上个国和地们为子说生时年就那要出以可会也你对能下自之得着过家"
    "学好起天小多然于心爱音乐琴钢鼓组贝斯吉他弦歌曲主旋律和声笛号风提管大小军打击节奏低高伴奏"
)
_TRADITIONAL: Final = frozenset(
    "的一是不了在人有我他這中大來上個國和地們為子說生愛音樂琴鋼鼓組貝斯吉弦歌曲主旋律聲笛號風"
)
# Lead bytes of the more common half of the characters of an encoding.
_LEADS: Final = {"gb18030": (0xB0, 0xD7), "big5": (0xA4, 0xC6), "euc_kr": (0xB0, 0xC8)}
_TYPICAL_OF: Final = {"gb18030": _CHINESE, "big5": _TRADITIONAL, "euc_kr": _KOREAN}
_CYRILLIC: Final = frozenset("абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґў")
_COMMON_CYRILLIC: Final = frozenset("оеаинтсрвл")
_COMMON: Final = 0.1
"""Weight of common letters, for encodings that give the same word other letters."""
_GREEK: Final = frozenset("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐ")
_ACCENTED: Final = frozenset("άέήίόύώΐ")
# small letters, since other encodings have a capital for some of them
_COMMON_LATIN: Final = frozenset("äöüßéèêàâçñáíóúôîûœøåæãõì")
_PUNCTUATION: Final = frozenset("“”„‘’‚–—…©®™°«»№")  # noqa: RUF001
_INSIDE: Final = re.compile(r"(?<=[^\W\d_])[„”–…](?=[^\W\d_])")
"""Marks within words, which are letters of other encodings."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = ("cp1252", "cp850", "mac_roman")
_CANDIDATES: Final = (
    *(*_LATIN, "cp1251", "koi8_r", "cp1253"),
    *("cp932", "gb18030", "euc_kr", "big5"),
)
_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def detect_encoding(contents: Iterable[bytes]) -> str:
    """Return the encoding of the texts of a file that are not UTF-8; `utf-8` if all are."""
    others = [content for content in contents if _as_utf8(content) is None]
    if not others:
        return "utf-8"
    joined = b"\n".join(dict.fromkeys(others))[:_MOST_BYTES]
    scores = {encoding: _plausibility(joined, encoding) for encoding in _CANDIDATES}
    best = max(scores, key=lambda encoding: scores[encoding])
    return best if scores[best] > 0 else "latin-1"


def decode_text(content: bytes, encoding: str) -> str:
    """Decode a text of a file whose other texts have an encoding.

    If it has characters of three or four bytes in UTF-8, it is UTF-8 in any case, since no other
    text looks like that. Bytes that are not of the encoding are read as Latin 1.
    """
    text = _as_utf8(content)
    is_sure = text is not None and (text.isascii() or any(ord(letter) > 0x7FF for letter in text))
    if text is not None and (is_sure or encoding == "utf-8"):
        return text
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _as_utf8(content: bytes) -> str | None:
    """Return the text, if it is UTF-8 or has a byte order mark."""
    try:
        if encoding := _MARKS.get(content[:2]):
            return content[2:].decode(encoding)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _plausibility(content: bytes, encoding: str) -> float:
    """Return the share of common characters beyond ASCII; -1 if the bytes are not that encoding.

    A text may end in the middle of a character.
    """
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if error.start < len(content) - 1:
            return -1.0
        return 0.9 * _plausibility(content[: error.start], encoding)
    letters = [letter for letter in text if not letter.isascii()]
    if not letters:
        return -1.0
    if encoding in (*_LATIN, "cp1251", "koi8_r", "cp1253"):
        return _share_in_words(text, len(letters), encoding)
    if encoding == "cp932":
        return sum(map(_japanese, letters)) / len(letters)
    (low, high), typical = _LEADS[encoding], _TYPICAL_OF[encoding]
    codes = [letter.encode(encoding) for letter in letters]
    common = sum(len(code) == 2 and low <= code[0] <= high and code[1] > 0x3F for code in codes)
    if encoding == "gb18030":
        common -= sum(low <= code[0] <= high and code[1] < 0xA1 for code in codes)
    return (common + _TYPICAL * sum(letter in typical for letter in letters)) / len(letters)


def _share_in_words(text: str, num_letters: int, encoding: str) -> float:
    """Return the share of the characters beyond ASCII in words that look like words of an alphabet.

    Latin words are mostly ASCII, and Cyrillic and Greek ones have none of it. Greek words have an
    accent, unless they are in capitals.
    """
    good = sum(
        (0.92 if letter in _PUNCTUATION else 0.25)
        for letter in _INSIDE.sub("", text)
        if not (letter.isascii() or letter.isalpha())
    )
    for word in _WORD.findall(text):
        lower = word.lower()
        beyond = sum(not letter.isascii() for letter in word)
        # capitals stand at the beginning of a word, or everywhere
        is_written = word.isalpha() and (word[1:].islower() or word in (word.upper(), word[0]))
        if beyond == len(word) == 1:
            good += 0.6 if encoding in _LATIN else 0.5
        elif is_written and encoding in _LATIN:
            common = sum(letter in _COMMON_LATIN for letter in word)
            good += (beyond + _COMMON * common) * (2 * beyond <= len(word))
        elif is_written and encoding == "cp1253":
            has_accent = len(word) <= 3 or word.isupper() or not _ACCENTED.isdisjoint(lower)
            if has_accent and _GREEK.issuperset(lower) and "ς" not in lower[:-1]:
                good += 1.3 * beyond
        elif is_written and _CYRILLIC.issuperset(lower):
            good += 1.2 * beyond + _COMMON * len(_COMMON_CYRILLIC.intersection(lower))
    return good / num_letters


def _japanese(letter: str) -> float:
    """Return how common a character is in Japanese."""
    if "\u3041" <= letter <= "\u30fc":  # kana
        return 1 + _TYPICAL / 2
    if "\uff61" <= letter <= "\uff9f":
        return _HALF_WIDTH
    code = letter.encode("cp932")
    return 0.95 * (len(code) == 2 and 0x81 <= code[0] <= 0x97)
