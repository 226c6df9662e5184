"""The gated delta rule: a state that can overwrite what a key has stored."""
