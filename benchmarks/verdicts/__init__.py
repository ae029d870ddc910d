"""How often `trainlint verify` is wrong: experiments whose truth is planted, and the page with their results."""
