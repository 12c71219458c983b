"""The self-verifier: which answer does a reasoning text alone lead to?"""
