// torchvision._C
#include <Python.h>

#include <torch/extension.h>

#include "nms.h"

namespace {

PyObject* nms_hip(PyObject*, PyObject* arguments) {
    PyObject* list;
    float threshold;
    if (!PyArg_ParseTuple(arguments, "O!f", &PyList_Type, &list, &threshold)) return nullptr;
    at::Numbers boxes(PyList_GET_SIZE(list));
    for (size_t i = 0; i < boxes.size; i++) {
        boxes.data[i] = static_cast<float>(PyFloat_AsDouble(PyList_GET_ITEM(list, i)));
    }
    if (PyErr_Occurred()) return nullptr;
    if (boxes.size % 4) return PyErr_Format(PyExc_ValueError, "a box is four numbers");
#ifdef WITH_CUDA
    const size_t count = boxes.size / 4;
    int* keep = new int[count];
    for (size_t i = 0; i < count; i++) keep[i] = 1;
    const int error = vision::nms_cuda(count, boxes.data, threshold, keep);
    PyObject* kept = PyList_New(0);
    for (size_t i = 0; error == 0 && i < count; i++) {
        if (!keep[i]) continue;
        PyObject* index = PyLong_FromSize_t(i);
        PyList_Append(kept, index);
        Py_DECREF(index);
    }
    delete[] keep;
    return Py_BuildValue("iN", error, kept);
#else
    return PyErr_Format(PyExc_RuntimeError, "built without GPU kernels");
#endif
}

PyMethodDef methods[] = {
    {"nms_hip", nms_hip, METH_VARARGS, "(boxes, threshold) -> (HIP's error number, indices), on the GPU"},
    {},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
