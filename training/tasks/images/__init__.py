"""Classification of images and of signals with the size of an image row."""
