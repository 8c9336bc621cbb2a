// amp_C
#include <Python.h>

#include <torch/extension.h>

#include "multi_tensor_sgd.h"

namespace {

bool read(PyObject* list, at::Numbers& numbers) {
    for (size_t i = 0; i < numbers.size; i++) {
        numbers.data[i] = static_cast<float>(PyFloat_AsDouble(PyList_GET_ITEM(list, i)));
    }
    return PyErr_Occurred() == nullptr;
}

PyObject* multi_tensor_sgd(PyObject*, PyObject* arguments) {
    PyObject *first, *second;
    float rate;
    if (!PyArg_ParseTuple(arguments, "O!O!f", &PyList_Type, &first, &PyList_Type, &second, &rate)) return nullptr;
    at::Numbers parameters(PyList_GET_SIZE(first)), gradients(PyList_GET_SIZE(second));
    if (!read(first, parameters) || !read(second, gradients)) return nullptr;
    if (parameters.size != gradients.size) return PyErr_Format(PyExc_ValueError, "lengths differ");
    const int error = multi_tensor_sgd_cuda(parameters.size, parameters.data, gradients.data, rate);
    PyObject* result = PyList_New(static_cast<Py_ssize_t>(parameters.size));
    for (size_t i = 0; result != nullptr && i < parameters.size; i++) {
        PyList_SET_ITEM(result, i, PyFloat_FromDouble(parameters.data[i]));
    }
    return result == nullptr ? nullptr : Py_BuildValue("iN", error, result);
}

PyMethodDef methods[] = {
    {"multi_tensor_sgd", multi_tensor_sgd, METH_VARARGS, "(parameters, gradients, rate) -> (HIP's error number, list)"},
    {},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "amp_C", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit_amp_C() { return PyModule_Create(&module); }
