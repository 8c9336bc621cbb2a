"""Releases: wheel sets in stores, what is known of them, and what of them users see."""
