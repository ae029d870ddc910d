"""TL0xx: about the check itself."""
