"""Building the name tables from wheels. Only `trainlint.torch_api.regenerate` comes here; a check never does."""
