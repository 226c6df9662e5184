from __future__ import annotations

from app.audio.formats import AUDIO_FORMATS, CONTAINERS
from app.server.downloads import DOWNLOADS, MENU, SOUND_KINDS


def test_every_kind_has_a_name_of_its_own_and_a_place_in_the_menu():
    kinds = [download.kind for download in DOWNLOADS]
    assert len(set(kinds)) == len(kinds)
    assert len({download.suffix for download in DOWNLOADS}) == len(kinds)
    assert [kind for kind, _, _ in MENU] == kinds[1:]
    assert all(download.label and download.text for download in DOWNLOADS)


def test_every_audio_format_can_be_written_and_downloaded():
    assert set(CONTAINERS) == set(AUDIO_FORMATS)
    assert (*AUDIO_FORMATS, "stems") == SOUND_KINDS
