"""Attacks on the endpoints: each sends real packets to a running `verus-endpoint`, or works on its files.

`python -m attacks` (or `make attacks`) runs all of them and says what was tried, what happened, and what held;
`python -m attacks.soak` (or `make soak`) runs servers for a while under them and 200 honest clients.
"""
