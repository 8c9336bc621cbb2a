// torch._C: nothing but the door to libtorch_python
#include <Python.h>

extern "C" PyObject* initModule();

PyMODINIT_FUNC PyInit__C() { return initModule(); }
