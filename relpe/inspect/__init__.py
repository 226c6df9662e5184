"""What an encoding has learned, in numbers and pictures."""
