"""Speed of Kvern beside llama.cpp and OpenVINO GenAI, and beside its own earlier commits.

scripts/bench runs it; docs/peers.md says how it measures and how to read what it writes.
"""
