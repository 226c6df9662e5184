# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The theme of the page."""

from __future__ import annotations

import re

from app.player.assets import COLOURS
from app.web.assets import theme


def test_the_login_has_the_colours_of_the_page():
    css = theme()._get_theme_css()
    used = set(re.findall(r"var\((--[a-z-]+)\)", css))
    own = {name for name in used if re.search(rf"{name}:", COLOURS.read_text("utf-8"))}
    assert len(own) > 8
    assert [name for name in sorted(own) if not re.search(rf"{name}: *[#u0r]", css)] == []
    assert 'input[type="password"]' in css
    assert "#desk" not in css
