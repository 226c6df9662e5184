"""The built-in SoundFont player."""
