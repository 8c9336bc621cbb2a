"""Reading finished wheels: names, RECORD, METADATA, and the device code inside.

| module | what it knows |
|---|---|
| ``names`` | wheel file names, the variant label of PEP 825 included |
| ``record`` ``metadata`` | RECORD, METADATA and WHEEL |
| ``dist_info`` | the folder of those three, and what they must agree on |
| ``members`` | the archive itself: each member inflated at most once, every damage named |
| ``scan`` | one pass over a wheel that gives all of the above and the device code |
| ``device_code`` | code objects of one file or of a wheel: the public face of the six below |
| ``elf`` ``pe`` ``archive`` | sections of host binaries, members of static libraries |
| ``offload`` ``inflate`` | offload bundles, plain and compressed |
| ``kpack`` ``messagepack`` | archives of device code that was moved out of its libraries |
| ``target_id`` | target IDs, and the processor numbers in the flags of AMDGPU ELF files |
"""
