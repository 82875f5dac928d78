"""The language study (MoFA): head mixes in GPT-2, compared in and out of distribution."""
