"""Constants, texts, containers and iterators of plain Python."""
