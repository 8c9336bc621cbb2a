"""How fast the installed torch is here: matmul, convolution, attention, by dtype, beside the CPU.

| module | what it does |
|---|---|
| ``measures`` | the measuring itself, which runs under the Python that is measured |
| ``benchmark`` | which measurements, on which devices, and what they come to |
| ``table`` | the figures for people |
"""
