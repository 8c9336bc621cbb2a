"""A wheel as what it is on disk: extents of a zip archive, read strictly and copied as they are.

| module | what it knows |
|---|---|
| ``faults`` | every fault an archive can have, by name |
| ``records`` | the records of the zip format, packed and unpacked |
| ``ending`` | the end of an archive: where its directory lies, and how long it is |
| ``directory`` | its entries, and what is wrong with one alone |
| ``layout`` | directory and local headers, compared, as extents that fill the file |
| ``entry_names`` | names that lead out, collide or are read in two ways |
| ``contents`` | members inflated piece by piece, every damage named |
| ``copying`` | a range of one file into another, by the kernel where it can |
| ``appearing`` | a large file that is there whole or not at all |
| ``edits`` ``edit_texts`` ``edit_record`` | what a wheel becomes: file name, METADATA, WHEEL, RECORD |
| ``rewrite`` | a wheel with other dist-info files, every other member copied as it is |
"""
