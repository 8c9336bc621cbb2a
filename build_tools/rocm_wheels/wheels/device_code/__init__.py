"""Device code in files and wheels: which gfx targets a library holds kernels for.

| module | what it knows |
|---|---|
| ``objects`` | code objects of one file or of a wheel: the public face of the others |
| ``quick`` | which targets a file is for, from its tables alone |
| ``elf`` ``pe`` ``ar`` | sections of host binaries, members of static libraries |
| ``offload`` ``inflate`` | offload bundles, plain and compressed |
| ``kpack`` ``messagepack`` | archives of device code that was moved out of its libraries |
| ``loading`` | what a library loads, and from where |
| ``target_id`` | target IDs, and the processor numbers in the flags of AMDGPU ELF files |
| ``span`` | bytes that know which file they are a part of |
"""
