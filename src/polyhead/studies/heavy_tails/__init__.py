"""The heavy-tail study: attention functions in transformers that map measures to measures."""
