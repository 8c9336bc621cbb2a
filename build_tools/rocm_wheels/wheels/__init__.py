"""Finished wheels: names, RECORD, METADATA, the archive, and the device code inside.

| module | what it knows |
|---|---|
| ``names`` | wheel file names, the variant label of PEP 825 included |
| ``record`` ``metadata`` | RECORD, METADATA and WHEEL |
| ``dist_info`` | the folder of those three, and what they must agree on |
| ``members`` | the archive itself: each member inflated at most once, every damage named |
| ``archive/`` | the archive as extents: strict reading, faults by name, rewriting at the speed of a copy |
| ``compare`` | two wheels, from sizes, CRCs and METADATA |
| ``scan`` | one pass over a wheel that gives all of the above and the device code |
| ``device_code/`` | code objects of one file or of a wheel |
"""
