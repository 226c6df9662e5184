"""Learning that making music needs: a model that studies a sequence before it continues it."""
