"""The page's theme, styles and scripts."""

from __future__ import annotations

from pathlib import Path

from gradio.themes import Base
from gradio.themes.utils import colors, sizes

from app.player.assets import COLOURS, Modules

_COLOURS = {
    "body_background_fill": "var(--paper)",
    "body_text_color": "var(--ink)",
    "body_text_color_subdued": "var(--quiet)",
    "background_fill_primary": "var(--card)",
    "background_fill_secondary": "var(--sunk)",
    "border_color_primary": "var(--line)",
    "border_color_accent": "var(--accent)",
    "color_accent_soft": "var(--accent-soft)",
    "block_background_fill": "transparent",
    "block_border_color": "transparent",
    "block_label_background_fill": "transparent",
    "block_label_border_color": "transparent",
    "block_label_text_color": "var(--ink)",
    "block_title_text_color": "var(--ink)",
    "block_title_background_fill": "transparent",
    "input_background_fill": "var(--card)",
    "input_border_color": "var(--line)",
    "input_border_color_focus": "var(--accent)",
    "slider_color": "var(--accent)",
    "checkbox_background_color": "var(--card)",
    "checkbox_background_color_selected": "var(--accent)",
    "checkbox_border_color": "var(--line-strong)",
    "checkbox_border_color_selected": "var(--accent)",
    "checkbox_label_text_color": "var(--ink)",
    "checkbox_label_background_fill": "transparent",
    "checkbox_label_background_fill_hover": "transparent",
    "checkbox_label_background_fill_selected": "transparent",
    "checkbox_label_border_color": "transparent",
    "button_primary_background_fill": "var(--accent)",
    "button_primary_background_fill_hover": "var(--accent-deep)",
    "button_primary_text_color": "var(--on-accent)",
    "button_primary_border_color": "transparent",
    "button_secondary_background_fill": "var(--card)",
    "button_secondary_background_fill_hover": "var(--sunk)",
    "button_secondary_border_color": "var(--line)",
    "button_secondary_text_color": "var(--ink)",
    "button_cancel_background_fill": "var(--ink)",
    "button_cancel_background_fill_hover": "var(--ink)",
    "button_cancel_text_color": "var(--paper)",
    "panel_background_fill": "transparent",
    "link_text_color": "var(--accent-deep)",
}

_STATIC = Path(__file__).parent / "static"
SCRIPTS = Modules.of_folder("page", _STATIC)
PAGE_STYLE = _STATIC / "page.css"


def static(name: str) -> str:
    """Return the text of a file of the page."""
    return (_STATIC / name).read_text(encoding="utf-8")


def theme() -> Base:
    """Return the theme, light and dark; no font is loaded from another host."""
    base = Base(
        primary_hue=colors.orange,
        neutral_hue=colors.stone,
        radius_size=sizes.radius_md,
        font=("system-ui", "sans-serif"),
        font_mono=("ui-monospace", "Consolas", "monospace"),
    )
    both = {**_COLOURS, **{f"{name}_dark": value for name, value in _COLOURS.items()}}
    # the colours, and the styles of the login page, which loads no others
    login = static(PAGE_STYLE.name).partition("\nbody {")[0]
    base.custom_css = COLOURS.read_text(encoding="utf-8") + login
    return base.set(
        **both,
        color_accent="var(--accent)",
        block_border_width="0px",
        block_label_border_width="0px",
        block_shadow="none",
        block_padding="0px",
        block_label_padding="0px",
        block_label_text_size="13px",
        block_label_text_weight="500",
        block_title_text_size="13px",
        block_title_text_weight="500",
        button_large_text_weight="600",
        button_large_radius="10px",
        input_radius="8px",
        input_shadow="none",
        layout_gap="18px",
    )
