"""From Python frames to cache entries."""
