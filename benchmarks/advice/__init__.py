"""What the usual tuning advice comes to on three small scripts, measured by `verify` itself, and the page with it."""
