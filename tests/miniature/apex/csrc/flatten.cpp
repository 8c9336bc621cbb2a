// apex_C: one flat list out of many.
#include <Python.h>

#include <torch/extension.h>

namespace {

PyObject* flatten(PyObject*, PyObject* lists) {
    PyObject* flat = PyList_New(0);
    PyObject* outer = PySequence_Fast(lists, "a sequence of lists is needed");
    for (Py_ssize_t i = 0; outer && flat && i < PySequence_Fast_GET_SIZE(outer); i++) {
        PyObject* end = PySequence_InPlaceConcat(flat, PySequence_Fast_GET_ITEM(outer, i));
        Py_DECREF(flat);
        flat = end;
    }
    Py_XDECREF(outer);
    return flat;
}

PyMethodDef methods[] = {{"flatten", flatten, METH_O, "(lists) -> list"}, {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "apex_C", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit_apex_C() { return PyModule_Create(&module); }
